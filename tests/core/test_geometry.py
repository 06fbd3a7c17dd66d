"""Random pairs of published shapes: what is written to disk for a start is what was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target

# The device's kernels are imported with it.
pytest.importorskip("triton", reason="Triton comes for Linux alone")

from dflash_core.benchmarks.geometry import GEOMETRIES, random_pair
from dflash_core.benchmarks.start import write_pair
from dflash_core.benchmarks.stored_forms import skew
from dflash_core.block_decoder import BlockDecoder
from dflash_core.configs import draft_spec, target_spec
from dflash_core.layers.moe import Mixture, route
from dflash_core.sessions import Session
from tests.core import tiny_mimo


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


@pytest.mark.parametrize("form", ["fp8", "mxfp4"])
def test_some_layers_of_a_mimo_are_random_in_the_form_of_its_checkpoint(form: Any) -> None:
    published = GEOMETRIES["mimo-v2.5-layers"]
    assert published.pair is not None
    small = tiny_mimo.config(**tiny_mimo.V2_5, hidden_size=128, num_key_value_heads=4, swa_num_key_value_heads=8)
    target = target_spec(small | {"intermediate_size": 128, "moe_intermediate_size": 128})
    draft = draft_spec(tiny_mimo.draft_config(hidden_size=128))
    geometry = replace(published, pair=(target, draft), form=form)
    made, drafted = random_pair(geometry, 8, 64, [torch.device("cpu")] * 2, torch.float32)
    assert len(made.stages) == 2 and made.stages[0].start == 0 and made.stages[1].stop == len(made.layers)
    session = Session(made, drafted, 64)
    decoder = BlockDecoder(made, drafted)
    decoder.prefill(session, list(range(20)))
    assert len(decoder.round(session, 1, 8).tokens) >= 1
    for name, parameter in made.named_parameters():
        if parameter.is_floating_point():
            assert torch.isfinite(parameter.float()).all(), name
    rows = torch.randn(8, 128, generator=torch.Generator().manual_seed(5))
    mixture = made.layers[1].mlp
    assert isinstance(mixture, Mixture)
    picked = route(mixture.gate(rows), mixture.spec, mixture.choice_bias)[0].unique().numel()
    skew(made)
    assert route(mixture.gate(rows), mixture.spec, mixture.choice_bias)[0].unique().numel() <= picked


def test_the_layers_that_are_measured_are_those_of_the_published_models() -> None:
    for name, form in (("mimo-v2.5-layers", "fp8"), ("mimo-v2.6-flash-layers", "mxfp4")):
        geometry = GEOMETRIES[name]
        assert geometry.form == form and geometry.pair is not None
        layers = geometry.pair[0].layers
        assert [layer.window for layer in layers] == [129] * 5 + [None]
        assert all(layer.mixture and layer.mixture.num_experts == 256 for layer in layers)
        assert [layer.qkv_size for layer in layers] == [14848] * 5 + [13568]
        assert geometry.pair[1].layers[0].window == 1024 and len(geometry.pair[1].target_layer_ids) == 5
    for name in ("mimo-v2.5", "mimo-v2.6-flash"):
        whole = GEOMETRIES[name].pair
        assert whole is not None and len(whole[0].layers) == 48
        assert whole[1].target_layer_ids == (0, 11, 23, 35, 47)
