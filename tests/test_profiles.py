"""Profiles: what ships is right, and what is wrong is one line that names file and key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from server import paths
from server.errors import DflashError
from server.profiles import ProfileError, load_profile, own_profiles, shipped_profiles

RESIDENT = """
[engine]
kind = "resident"
[target]
path = "target"
[prompt]
tokenizer = "tokenizer.json"
"""


def write(directory: Path, text: str, name: str = "mine.toml") -> str:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_every_shipped_profile_loads() -> None:
    mimo = [f"mimo-{version}{engine}" for version in ("v2.5", "v2.6-flash") for engine in ("", "-vllm")]
    resident = ["mimo-7b", "mimo-v2.5-resident", "mimo-v2.6-flash-resident"]
    assert shipped_profiles() == sorted(["embedded", *mimo, *resident, "openai-compatible", "replay"])
    for name in shipped_profiles():
        assert load_profile(name).name == name


def test_the_embedded_profile_is_what_the_design_says(private_dirs: Path) -> None:
    profile = load_profile("embedded")
    assert profile.engine.kind == "resident"
    assert profile.engine.context == 2048
    assert profile.target and profile.target.path == private_dirs / "cache/dflash-lsp/embedded/target"
    assert profile.draft and profile.draft.path == paths.asset("embedded", "draft")
    assert profile.prompt is not None
    assert profile.prompt.tokenizer.is_file()
    assert profile.prompt.format == "suffix-prefix-middle"
    assert (profile.prompt.budget, profile.prompt.suffix_budget, profile.prompt.max_tokens) == (512, 128, 96)
    assert (profile.prompt.stop_ids, profile.prompt.marker_ids["bos"]) == ((0, 2), 0)
    assert profile.prompt.heal


def test_the_replay_profile_ships_a_recording_whose_chunks_are_its_text() -> None:
    profile = load_profile("replay")
    assert profile.prompt is None and profile.target is None and profile.engine.recording
    lines = profile.engine.recording.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) >= 5
    for entry in entries:
        assert entry.keys() == {"after", "text", "chunks", "delay_ms"}
        assert "".join(entry["chunks"]) == entry["text"]
        assert len(entry["chunks"]) > 1


def test_relative_paths_are_relative_to_the_profile_file(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, RESIDENT))
    assert profile.target and profile.target.path == tmp_path / "target"
    assert profile.draft is None


def test_a_linked_cache_directory_is_followed(private_dirs: Path, tmp_path: Path) -> None:
    paths.cache_dir().mkdir()
    (paths.cache_dir() / "big").symlink_to(tmp_path)
    profile = load_profile(write(tmp_path, RESIDENT.replace('"target"', '"cache:big/target"')))
    assert profile.target and profile.target.path == paths.cache_dir() / "big/target"


def test_the_users_own_profile_is_found_by_name_and_replaces_a_shipped_one(private_dirs: Path) -> None:
    own = paths.config_dir() / "profiles"
    own.mkdir(parents=True)
    write(own, RESIDENT, "mine.toml")
    write(own, RESIDENT, "embedded.toml")
    assert own_profiles() == ["embedded", "mine"]
    assert load_profile("mine").file == own / "mine.toml"
    assert load_profile("embedded").file == own / "embedded.toml"


@pytest.mark.parametrize("name", ["nope", "../embedded", "", "a/b", "."])
def test_an_unknown_name_says_which_are_known(name: str) -> None:
    with pytest.raises(ProfileError, match=r"known are embedded, .*, replay"):
        load_profile(name)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("engine = 3", "engine must be a table"),
        ("[engin]\nkind = 'replay'", "engin is not a known key"),
        ("[engine]\nkind = 'magic'", "engine.kind must be one of resident, remote, replay"),
        ("[engine]\nkind = 'replay'", "engine.recording is missing"),
        ("[engine]\nkind = 'remote'", "engine.address is missing"),
        ("[engine]\nkind = 'remote'\naddress = 'ftp://x'", "engine.address must be an http://"),
        ("[engine]\nkind = 'remote'\naddress = 'http://'", "engine.address must be an http://"),
        ("[engine]\nkind = 'remote'\naddress = 'http://127.0.0.1:99999'", "engine.address must be an http://"),
        ("[engine]\nkind = 'remote'\naddress = 'http://[::1'", "engine.address must be an http://"),
        ('[engine]\nkind = "replay"\nrecording = "x\\u0000y"', "engine.recording must be a path"),
        ("[engine]\nkind = 'replay'\nrecording = '~nosuchuser/x'", "engine.recording names a home directory"),
        ("[engine]\naddress = 'http://x'\n[target]\npath = 'x'", "engine.address belongs to kind = 'remote'"),
        ("[engine]\nthreads = 0", "engine.threads must be a whole number"),
        ("[engine]\nthreads = true", "engine.threads must be a whole number"),
        ("[engine]\nthreads = 2.5", "engine.threads must be a whole number"),
        ("[engine]\ncontext = 10", "engine.context must be a whole number"),
        ("[engine]\nidle_minutes = nan", "engine.idle_minutes must be a number"),
        ("[engine]\nidle_minutes = '5'", "engine.idle_minutes must be a number"),
        ("[engine]\ndevices = 0", "engine.devices must be how many GPUs (1 to 64), or a list of different numbers"),
        ("[engine]\ndevices = [1, 1]", "engine.devices must be how many GPUs"),
        ("[engine]\ndevices = [true]", "engine.devices must be how many GPUs"),
        ("[engine]\ndevices = 2\ndevice = 'cpu'", "engine.devices goes with kind = 'resident' and device = 'auto'"),
        ("[engine]\ndevice = 'tpu'", "engine.device must be auto, cpu, mps, cuda or cuda:N"),
        ("[engine]\ndtype = 'float16'", "engine.dtype must be one of"),
        ("[engine]\ncolour = 1", "engine.colour is not a known key"),
        ("", "target is missing"),
        ("[target]\npath = 'x'", "prompt is missing"),
        ("[target]\n[prompt]\ntokenizer = 'x'", "target.path is missing"),
        ("[target]\npath = 'x'\nrotary_base = 1e4\n[prompt]\ntokenizer = 'x'", "target.rotary_base is not a known"),
        (RESIDENT + "[draft]\nrevision = 'x'", "draft.path is missing"),
        (RESIDENT + "[draft]\npath = 'x'\nrotary_base = -1", "draft.rotary_base must be a number"),
        (RESIDENT.replace("'target'", "''").replace('"target"', '""'), "target.path must be a path"),
        (RESIDENT.replace('"target"', '"cache:../../elsewhere"'), "target.path must stay inside the cache"),
        (RESIDENT + "budget = 8", "prompt.budget must be a whole number"),
        (RESIDENT + "budget = 2000\nmax_tokens = 100", "prompt.budget does not fit"),
        (RESIDENT + "stop_ids = [1, '2']", "prompt.stop_ids must hold token ids, not '2'"),
        (RESIDENT + "stop_ids = [true]", "prompt.stop_ids must hold token ids"),
        (RESIDENT + "stop_ids = 3", "prompt.stop_ids must be a list"),
        (RESIDENT + "marker_ids = {bos = -1}", "prompt.marker_ids.bos must hold token ids"),
        (RESIDENT + "heal = 1", "prompt.heal must be true or false"),
        (RESIDENT + "format = 'prose'", "prompt.format must be one of"),
        (RESIDENT + "format = 'chat'", "prompt.marker_ids lacks 'turn_start'"),
        (RESIDENT + "format = 'prefix-suffix-middle'", "prompt.marker_ids lacks 'prefix'"),
        ("[engine]\nkind = 'replay'\nrecording = 'x'\n[target]\npath = 'x'", "target does not belong"),
        ("[engine]\nkind = 'replay'\nrecording = 'x'\n[prompt]\ntokenizer = 'x'", "prompt does not belong"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        load_profile(file)
    assert str(caught.value).startswith(f"profile {file}: {key}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_profile_is_one_line(tmp_path: Path) -> None:
    for content, problem in ((b"[engine", "is not valid TOML"), (b"\xff\xfe", "is not UTF-8")):
        (tmp_path / "mine.toml").write_bytes(content)
        with pytest.raises(ProfileError, match=problem) as caught:
            load_profile(str(tmp_path / "mine.toml"))
        assert "\n" not in str(caught.value)
    with pytest.raises(ProfileError, match="does not exist"):
        load_profile(str(tmp_path / "absent.toml"))


def test_the_key_changes_with_what_decides_the_engine_and_with_nothing_else(tmp_path: Path) -> None:
    base = load_profile(write(tmp_path, RESIDENT)).key
    same = [RESIDENT + "budget = 100", RESIDENT.replace('kind = "resident"', "idle_minutes = 1")]
    other = [
        RESIDENT.replace('"target"', '"target2"'),
        RESIDENT + '[draft]\npath = "draft"',
        RESIDENT.replace("tokenizer.json", "other.json"),
        RESIDENT.replace('kind = "resident"', 'dtype = "float32"'),
        RESIDENT.replace('kind = "resident"', "threads = 1"),
    ]
    assert {load_profile(write(tmp_path, text)).key for text in same} == {base}
    keys = {load_profile(write(tmp_path, text)).key for text in other}
    assert len(keys) == len(other) and base not in keys


def test_the_runtime_directory_is_private(private_dirs: Path) -> None:
    directory = paths.runtime_dir()
    assert directory.is_relative_to(private_dirs)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert paths.runtime_dir() == directory


@pytest.mark.skipif(os.name == "nt", reason="permissions of another kind")
def test_a_runtime_directory_open_to_others_is_refused(private_dirs: Path) -> None:
    paths.runtime_dir().chmod(0o755)
    with pytest.raises(DflashError, match="open to others"):
        paths.runtime_dir()


@pytest.mark.skipif(os.name == "nt", reason="needs a link")
def test_a_runtime_directory_that_is_a_link_is_refused(private_dirs: Path, tmp_path: Path) -> None:
    (private_dirs / "runtime/dflash-lsp").symlink_to(tmp_path)
    with pytest.raises(DflashError, match="is not a directory"):
        paths.runtime_dir()
