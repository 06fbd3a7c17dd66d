"""The published MiMo drafts are read exactly: every tensor, every key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.names import checkpoint_names, part_rows
from dflash_core.checkpoints.target import load_target
from dflash_core.configs import draft_spec
from dflash_core.draft import Draft
from dflash_core.errors import CheckpointError
from dflash_core.published import DRAFT_V2_5, DRAFT_V2_5_PRO, DRAFT_V2_6
from dflash_core.sessions import Session
from tests.core import tiny, tiny_mimo


def shapes(config: dict[str, object]) -> dict[str, list[int]]:
    """The published tensors of a draft of this config, with their shapes."""
    with torch.device("meta"):
        draft = Draft(draft_spec(config))
    found: dict[str, list[int]] = {}
    for name, parameter in draft.named_parameters():
        if name == "mask_embedding":  # in mask_embedding.pt
            continue
        names = checkpoint_names(name)
        rows = [parameter.shape[0]] if len(names) == 1 else part_rows(name, draft.spec.layers[0])
        found |= {part: [r, *parameter.shape[1:]] for part, r in zip(names, rows, strict=True)}
    return found


def test_v2_5_has_its_63_tensors() -> None:
    expected = {"fc.weight": [4096, 20480], "hidden_norm.weight": [4096], "norm.weight": [4096]}
    for i in range(5):
        layer = {
            "input_layernorm.weight": [4096], "post_attention_layernorm.weight": [4096],
            "self_attn.q_proj.weight": [8192, 4096], "self_attn.k_proj.weight": [1024, 4096],
            "self_attn.v_proj.weight": [1024, 4096], "self_attn.o_proj.weight": [4096, 8192],
            "self_attn.q_norm.weight": [128], "self_attn.k_norm.weight": [128],
            "self_attn.attention_sink_bias": [64], "mlp.gate_proj.weight": [16384, 4096],
            "mlp.up_proj.weight": [16384, 4096], "mlp.down_proj.weight": [4096, 16384],
        }  # fmt: skip
        expected |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    assert len(expected) == 63
    assert shapes(DRAFT_V2_5) == expected == shapes(DRAFT_V2_6)


def test_the_variants_say_the_same_in_their_own_keys() -> None:
    v2_5, v2_6, pro = (draft_spec(config) for config in (DRAFT_V2_5, DRAFT_V2_6, DRAFT_V2_5_PRO))
    for spec in (v2_5, v2_6, pro):
        for layer in spec.layers:
            # A window of 1024, not causal: bidirectional in the block, at most 1024 positions back.
            assert (layer.window, layer.causal, layer.sinks, layer.value_scale) == (1024, False, True, 0.612)
        assert (spec.block_size, spec.mask_token_id, spec.rotary.dim, spec.rotary.base) == (8, 151675, 64, 10000.0)
    assert v2_5.target_layer_ids == v2_6.target_layer_ids == (0, 11, 23, 35, 47)
    assert replace(v2_6, rotary=v2_5.rotary) == v2_5
    assert pro.target_layer_ids == (0, 15, 31, 47, 69) and pro.hidden_size == 6144 and pro.num_target_layers == 70
    assert shapes(DRAFT_V2_5_PRO)["fc.weight"] == [6144, 5 * 6144]
    assert draft_spec(DRAFT_V2_5, rotary_base=5e6).rotary.base == 5e6


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_mimo.write_plain(tmp_path_factory.mktemp("target"), tiny_mimo.tensors())


def test_the_published_folder_is_read_as_it_comes(target_folder: Path, tmp_path: Path) -> None:
    """Its own file name, an index, remote code and a marker file beside: code is neither needed nor run."""
    folder = tiny.write_draft(tmp_path / "dflash", tiny_mimo.draft_config(), mask=True)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "dflash_draft_model.safetensors")
    places = dict.fromkeys(tensors, "dflash_draft_model.safetensors")
    import json

    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "dflash.py").write_text("raise SystemExit('the code of a checkpoint was run')")
    (folder / "done_mtp").write_text("")
    draft = load_draft(folder, load_target(target_folder))
    assert torch.equal(draft.layers[0].self_attn.sinks, tensors["layers.0.self_attn.attention_sink_bias"])  # type: ignore[arg-type]
    del tensors["layers.1.self_attn.attention_sink_bias"]  # as the shipped dflash.py registers them: without sinks
    save_file(tensors, folder / "dflash_draft_model.safetensors")
    with pytest.raises(CheckpointError, match=r"attention_sink_bias"):
        load_draft(folder, load_target(target_folder))


@pytest.mark.parametrize(
    "change",
    [
        {"partial_rotary_factor": 1.0},
        {"rope_theta": 5000000},
        {"dflash": {"attention_value_scale": 1.0}},
        {"dflash": {"use_swa": False}},
        {"dflash": {"swa_window_size": 19}},
        {"dflash": {"causal": True}},
        {"dflash": {"target_layer_ids": [1, 5]}},
        {"dflash": {"target_layer_ids": [0, 4]}},
    ],
    ids=str,
)
def test_every_key_of_the_config_changes_what_is_drafted(
    change: dict[str, object], target_folder: Path, tmp_path: Path
) -> None:
    target = load_target(target_folder)
    found = []
    for name, config in (("right", tiny_mimo.draft_config()), ("other", tiny_mimo.draft_config(**change))):
        draft = load_draft(tiny.write_draft(tmp_path / name, config, mask=True), target)
        decoder, session = BlockDecoder(target, draft), Session(target, draft, 64)
        decoder.prefill(session, [i % 90 for i in range(40)])
        positions = session.next_positions(8)
        x = draft.block_input(target.embed(torch.tensor([[7]])))
        found.append(draft(x, positions, session.draft_attention(positions)))
    assert (found[0] - found[1]).abs().max() > 1e-3
