"""`models` says which profile fits this machine, with its arithmetic; a pair that does not fit is refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_core.configs import draft_spec, target_spec
from dflash_core.published import DRAFT_V2_5, PUBLISHED
from dflash_core.sizes import draft_bytes, kv_bytes, target_bytes
from server.cli import main
from server.monitoring.device import Device
from server.monitoring.footprint import footprint_of
from server.monitoring.readiness import check_profile
from server.profiles import load_profile
from tests.core import tiny, tiny_mimo

H200 = {"name": "a GPU", "memory": 150_000_000_000, "capability": "9.0"}


def test_the_arithmetic_gives_the_published_sizes() -> None:
    assert draft_bytes(draft_spec(DRAFT_V2_5)) == 2_936_114_304  # of the 63 tensors of MiMo-V2.5-DFlash
    v2_5, v2_6 = (PUBLISHED[name] for name in ("mimo-v2.5", "mimo-v2.6-flash"))
    # The repositories hold more: layers for multi-token prediction (1.19 GB), encoders (about 1.5 GB), the draft.
    assert 310e9 < target_bytes(target_spec(v2_5.target), v2_5.form) < 315.7e9
    assert 168e9 < target_bytes(target_spec(v2_6.target), v2_6.form) < 177.7e9
    # V2.5-Pro is told of by its parameters: 1.02 T, 42 B of them active; bf16 has two bytes each.
    pro = target_spec(PUBLISHED["mimo-v2.5-pro"].target)
    assert 1.015e12 < target_bytes(pro, "plain") / 2 < 1.025e12
    mixtures = [
        replace(layer.mixture, num_experts=layer.mixture.experts_per_row) for layer in pro.layers if layer.mixture
    ]
    active = replace(pro, layers=(pro.layers[0], *(replace(pro.layers[1], mixture=each) for each in mixtures)))
    assert 41.5e9 < target_bytes(active, "plain") / 2 < 42.5e9
    per_token = kv_bytes(target_spec(v2_5.target).layers, 1)
    assert per_token == 2 * (9 * 4 + 39 * 8) * (192 + 128)


def test_a_profile_fits_or_does_not_before_its_weights_are_here(private_dirs: Path) -> None:
    one = Device(cuda=[H200])
    small, large = check_profile(load_profile("mimo-7b"), one), check_profile(load_profile("mimo-v2.5-resident"), one)
    assert small.fits is True and large.fits is False
    assert small.footprint is not None and 16e9 < small.footprint.total < 17e9
    assert check_profile(load_profile("mimo-7b"), Device()).fits is None  # there is no GPU to fit on
    flash, two = load_profile("mimo-v2.6-flash-resident"), Device(cuda=[H200, H200])
    assert check_profile(flash, one).fits is False
    assert (check_profile(flash, two).fits, check_profile(flash, two).gpus) == (True, 2)
    assert check_profile(load_profile("mimo-v2.5-resident"), two).fits is False
    assert check_profile(load_profile("mimo-v2.5-resident"), Device(cuda=[H200] * 4)).gpus == 3
    assert check_profile(load_profile("mimo-7b"), two).gpus == 1  # no more than it needs
    assert "no public draft exists; dflash-lsp train draft" in small.note
    assert not small.can_run and small.reason.startswith("its target is not at")


def test_models_shows_the_sum(private_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert "mimo-v2.6-flash-resident: 175.5 GB of memory = 169.85 target + 2.94 draft + 1.99 8192 tokens" in text
    assert "mimo-7b: no public draft exists; dflash-lsp train draft" in text
    assert main(["models", "--json"]) == 0
    profiles = {each["profile"]: each for each in json.loads(capsys.readouterr().out)["profiles"]}
    layer = 4096 * (6144 + 4096 + 3 * 11008) + 6144 + 2 * 4096
    assert profiles["mimo-7b"]["footprint"]["target"] == 2 * (2 * 151680 * 4096 + 36 * layer + 4096)
    assert profiles["replay"]["footprint"] is None


def test_a_draft_of_another_target_is_refused_by_doctor_and_at_load(
    private_dirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tiny_mimo.write_plain(tmp_path / "target", tiny_mimo.tensors())
    draft = tiny.write_draft(target / "dflash", tiny_mimo.draft_config(hidden_size=32), mask=True)
    (tmp_path / "wrong.toml").write_text(
        f'[target]\npath = "{target}"\n[draft]\npath = "{draft}"\n'
        f'[prompt]\ntokenizer = "{Path("assets/embedded/tokenizer.json").resolve()}"\n'
    )
    profile = str(tmp_path / "wrong.toml")
    assert footprint_of(load_profile(profile)) is not None
    assert main(["doctor", "--profile", profile]) == 1
    found = capsys.readouterr()
    assert "hidden size 32, target has 64" in found.out + found.err
    from server.engine.protocol import EngineError
    from server.engine.resident.backend import _compare

    with pytest.raises(EngineError, match="hidden size 32"):
        _compare(load_profile(profile))


def test_a_profile_may_name_the_gpus_that_its_layers_are_split_over(private_dirs: Path, tmp_path: Path) -> None:
    shipped = load_profile("mimo-v2.6-flash-resident").file.read_text(encoding="utf-8")
    for written, devices in (("2", (0, 1)), ("[3, 1]", (3, 1))):
        file = tmp_path / "own.toml"
        file.write_text(shipped.replace("\n[engine]\n", f"\n[engine]\ndevices = {written}\n"), encoding="utf-8")
        profile = load_profile(str(file))
        assert profile.engine.devices == devices
        assert check_profile(profile, Device(cuda=[H200] * 4)).gpus == 2
        assert check_profile(profile, Device(cuda=[H200])).fits is False
