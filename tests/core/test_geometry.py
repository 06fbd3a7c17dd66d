"""Random pairs of published shapes: what is written to disk for a start is what was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target

# The device's kernels are imported with it.
pytest.importorskip("triton", reason="Triton comes for Linux alone")

from dflash_core.benchmarks.geometry import GEOMETRIES, random_pair
from dflash_core.benchmarks.start import write_pair


@pytest.mark.parametrize("name", ["qwen3-8b", "llama-3.1-8b", "mimo-7b"])
def test_a_random_pair_is_written_in_the_published_layout(name: str, tmp_path: Path) -> None:
    published = GEOMETRIES[name]
    layer = replace(published.layer, hidden_size=32, intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8)
    geometry = replace(published, layers=6, layer=layer, vocab_size=64, draft_layers=2)
    made = random_pair(geometry, 8, 64, torch.device("cpu"), torch.float32)
    write_pair(*made, geometry, tmp_path)
    target = load_target(tmp_path / "target")
    draft = load_draft(tmp_path / "draft", target)
    for module, loaded in zip(made, (target, draft), strict=True):
        expected, found = dict(module.named_parameters()), dict(loaded.named_parameters())
        expected.pop("mask_embedding", None), found.pop("mask_embedding", None)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert [layer.spec for layer in target.layers] == [layer.spec for layer in made[0].layers]
    assert draft.spec.target_layer_ids == made[1].spec.target_layer_ids
