"""A mixture-of-experts target: what a checkpoint may look like, and what is computed from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_core.checkpoints.target import load_target
from dflash_core.configs import target_spec
from dflash_core.errors import CheckpointError
from dflash_core.layers.moe import Mixture
from dflash_core.specs import MixtureSpec
from tests.core import tiny

Tensors = dict[str, torch.Tensor]
EXPERT = "model.layers.2.mlp.experts.5.up_proj.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("moe"), "qwen3_moe", **tiny.MIXTURE)


def rewritten(source: Path, to: Path, change: Callable[[Tensors], Tensors]) -> Path:
    to.mkdir()
    save_file(change(load_file(source / "model.safetensors")), to / "model.safetensors", metadata={"format": "pt"})
    (to / "config.json").write_text((source / "config.json").read_text())
    return to


def stacked(tensors: Tensors) -> Tensors:
    """All experts of a layer in two tensors, as transformers 5 holds them."""
    named = {name: tensor for name, tensor in tensors.items() if ".mlp.experts." not in name}
    for i in range(tiny.LAYERS):
        stem = f"model.layers.{i}.mlp.experts"

        def of(part: str, stem: str = stem) -> torch.Tensor:
            return torch.stack([tensors[f"{stem}.{e}.{part}.weight"] for e in range(8)])

        named[f"{stem}.gate_up_proj"] = torch.cat([of("gate_proj"), of("up_proj")], dim=1)
        named[f"{stem}.down_proj"] = of("down_proj")
    return named


def test_both_published_namings_of_the_experts_load_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    whole = rewritten(folder, tmp_path / "stacked", stacked)
    names = [set(load_file(f / "model.safetensors")) for f in (folder, whole)]
    assert EXPERT in names[0] and EXPERT not in names[1]
    one_by_one, at_once = (dict(load_target(f).named_parameters()) for f in (folder, whole))
    assert one_by_one.keys() == at_once.keys()
    assert all(torch.equal(one_by_one[name], at_once[name]) for name in at_once)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(EXPERT), "experts.5.up_proj.weight is missing"),
        (lambda t: t.update({EXPERT: torch.ones(25, 48)}), "experts.5.up_proj.weight has shape [25, 48], config.json"),
        (lambda t: t.update({EXPERT.replace("5", "8"): torch.ones(24, 48)}), "experts.8.up_proj.weight is not part"),
        (lambda t: t[EXPERT].__setitem__((0, 0), torch.inf), "not finite"),
    ],
)
def test_a_wrong_expert_is_named(change: Callable[[Tensors], Any], words: str, folder: Path, tmp_path: Path) -> None:
    def broken(tensors: Tensors) -> Tensors:
        change(tensors)
        return tensors

    with pytest.raises(CheckpointError) as caught:
        load_target(rewritten(folder, tmp_path / "broken", broken))
    assert words in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_which_layers_are_mixtures_is_read_from_the_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert all(layer.mixture for layer in target_spec(config).layers)
    spec = target_spec(config | {"decoder_sparse_step": 2, "mlp_only_layers": [3]})
    assert [layer.mixture is not None for layer in spec.layers] == [False, True, False, False, False, True]
    for wrong in (
        {"num_experts": 0},
        {"num_experts_per_tok": 9},
        {"moe_intermediate_size": None},
        {"decoder_sparse_step": 0},
        {"mlp_only_layers": 3},
    ):
        with pytest.raises(CheckpointError, match=next(iter(wrong))):
            target_spec(config | wrong)


def test_a_row_gets_the_same_output_alone_and_among_others() -> None:
    torch.manual_seed(0)
    mixture = Mixture(48, MixtureSpec(num_experts=8, experts_per_row=3, intermediate_size=24, normalized=True))
    for parameter in mixture.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    rows = torch.randn(1, 40, 48)
    with torch.no_grad():
        together = mixture(rows)[0]
        alone = torch.stack([mixture(row[None])[0] for row in rows[0]])
    assert (together - alone).abs().max() <= 1e-5
