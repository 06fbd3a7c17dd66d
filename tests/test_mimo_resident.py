"""A resident engine over what is contested or damaged: bases are tried once, a stopped load goes on when repaired."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dflash_core.engine import Engine, EngineOptions
from server.engine.resident.backend import ResidentBackend
from server.engine.rotary_bases import kept_base
from server.monitoring.metrics import Metrics
from server.paths import asset
from server.profiles import Profile, load_profile
from tests.core import tiny

TOKENIZER = asset("embedded", "tokenizer.json")


def profile_of(root: Path, target: Path, draft: Path | None) -> Profile:
    file = root / "own.toml"
    second = f'[draft]\npath = "{draft}"\n' if draft else ""
    file.write_text(
        f'[engine]\ncontext = 512\ndevice = "cpu"\ndtype = "float32"\n[target]\npath = "{target}"\n{second}'
        f'[prompt]\ntokenizer = "{TOKENIZER}"\nbudget = 256\nmax_tokens = 32\n'
    )
    return load_profile(str(file))


def test_a_trained_draft_with_two_named_bases_keeps_the_one_it_was_trained_with(
    embedded_target: Path,
    private_dirs: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(asset("embedded", "draft"), tmp_path / "draft")
    config = json.loads((tmp_path / "draft/config.json").read_text())
    right = float((config.get("rope_parameters") or config)["rope_theta"])
    nested = config["dflash_config"] | {"backbone_rotary_base": 50.0}
    (tmp_path / "draft/config.json").write_text(json.dumps(config | {"dflash_config": nested}))
    profile = profile_of(tmp_path, embedded_target, tmp_path / "draft")
    monkeypatch.setattr("server.engine.rotary_bases._SOURCES", ("profiles/loading.py",))  # one prompt is quicker
    with caplog.at_level("INFO"):
        loaded = ResidentBackend(profile, Metrics())._load()
    draft = loaded.engine.decoder.draft
    assert draft is not None and draft.spec.rotary.base == right
    kept = kept_base(profile)
    assert kept is not None and kept["base"] == right and kept["words"] in caplog.text
    file = next((private_dirs / "cache").rglob("rotary-bases/*.json"))
    file.write_text(json.dumps({"base": 50.0, "words": "kept before"}))
    asked: list[float | None] = []

    def noted(target: Path, draft: Path, tokens: object, options: EngineOptions, *rest: object) -> Engine:
        asked.append(options.rotary_base)
        return loaded.engine

    monkeypatch.setattr(Engine, "load", noted)
    ResidentBackend(profile, Metrics())._load()
    assert asked == [50.0]  # what was kept is believed: no second trial


async def test_a_load_that_stopped_says_where_and_goes_on_when_the_file_is_repaired(
    private_dirs: Path, tmp_path: Path
) -> None:
    target = tiny.write_target(tmp_path / "target")
    file = target / "model.safetensors"
    right = load_file(file)
    broken = dict(right)
    broken["model.layers.3.mlp.up_proj.weight"] = right["model.layers.3.mlp.up_proj.weight"] / 0
    save_file(broken, file, metadata={"format": "pt"})
    backend = ResidentBackend(profile_of(tmp_path, target, None), Metrics())
    backend.start()
    try:
        await state(backend, "failed")
        assert "layers.3.mlp.up_proj.weight holds values that are not finite" in backend.health().reason
        save_file(right, tmp_path / "new", metadata={"format": "pt"})
        (tmp_path / "new").replace(file)
        await state(backend, "ready")
    finally:
        backend.stop()


async def state(backend: ResidentBackend, wanted: str) -> None:
    for _ in range(3000):
        if backend.health().state == wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {wanted}: {backend.health()}")
