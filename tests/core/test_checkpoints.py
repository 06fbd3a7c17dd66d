"""A checkpoint that cannot be loaded says so in one line that names file and tensor, and nothing is half loaded."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_core import Engine, EngineOptions
from dflash_core.checkpoints.draft import load_draft, save_draft
from dflash_core.checkpoints.module import load_module
from dflash_core.checkpoints.reading import TensorFolder
from dflash_core.checkpoints.target import load_target
from dflash_core.config_values import read_config
from dflash_core.configs import target_spec
from dflash_core.errors import CheckpointError, DFlashError, IncompatiblePairError
from dflash_core.target import Target
from tests.core import tiny

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(target_folder: Path) -> Target:
    return load_target(target_folder)


def copy_with(source: Path, to: Path, change: Callable[[Tensors], Any]) -> Path:
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    to.mkdir()
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    (to / "config.json").write_text((source / "config.json").read_text())
    return to


NAME = "model.layers.2.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(NAME), "tensor layers.2.mlp.up_proj.weight is missing"),
        (lambda t: t.update({"model.layers.2.mlp.extra": torch.ones(2)}), "layers.2.mlp.extra is not part of"),
        (lambda t: t.update({NAME: torch.ones(3, 48)}), "config.json makes it [128, 48]"),
        (lambda t: t.update({NAME: t[NAME].to(torch.int8)}), "layers.2.mlp.up_proj.weight has type int8"),
        (lambda t: t.update({NAME: t[NAME].to(torch.float8_e4m3fn)}), "has type float8_e4m3fn"),
        (lambda t: t.update({NAME: torch.tensor(1.0)}), "[64, 48] + [], config.json makes it"),
        (lambda t: t[NAME].__setitem__((0, 0), float("nan")), "not finite"),
    ],
)
def test_a_wrong_tensor_is_named(
    change: Callable[[Tensors], Any], words: str, target_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_target(copy_with(target_folder, tmp_path / "broken", change))
    assert words in str(caught.value) and "\n" not in str(caught.value)


DRAFT_NAME = "layers.1.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(DRAFT_NAME), f"tensor {DRAFT_NAME} is missing"),
        (lambda t: t.update({"layers.3.mlp.up_proj.weight": torch.ones(2)}), "layers.3.mlp.up_proj.weight is not part"),
        (lambda t: t.update({"fc.weight": torch.ones(48, 96)}), "fc.weight has shape [48, 96], config.json makes it"),
        (lambda t: t.update({"norm.weight": torch.ones(48, dtype=torch.int32)}), "norm.weight has type int32"),
        (lambda t: t[DRAFT_NAME].__setitem__((0, 0), float("nan")), f"{DRAFT_NAME} holds values that are not finite"),
    ],
)
def test_an_engine_with_a_broken_draft_is_not_loaded_without_it(
    change: Callable[[Tensors], Any], words: str, target_folder: Path, tmp_path: Path
) -> None:
    whole = tiny.write_draft(tmp_path / "draft")
    broken = copy_with(whole, tmp_path / "broken", change)
    options = EngineOptions(device="cpu", dtype="float32", context=64, sessions=1)
    with pytest.raises(CheckpointError) as caught:
        Engine.load(target_folder, broken, tiny.token_bytes(), options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert Engine.load(target_folder, whole, tiny.token_bytes(), options).describe()["draft"]


def test_a_module_whose_checkpoint_is_broken_keeps_none_of_it(target_folder: Path, tmp_path: Path) -> None:
    with torch.device("meta"):
        module = Target(target_spec(read_config(target_folder)))
    # The very last tensor that is read is the wrong one.
    folder = copy_with(target_folder, tmp_path / "broken", lambda t: t.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match="lm_head"):
        tensors = TensorFolder(folder, prefix="model.")
        load_module(module, tensors, device=torch.device("cpu"), dtype=torch.float32)
    assert all(parameter.is_meta for parameter in module.parameters())


def test_weights_in_a_pickle_alone_and_a_tensor_in_two_files_are_refused(target_folder: Path, tmp_path: Path) -> None:
    copy = copy_with(target_folder, tmp_path / "copy", lambda t: None)
    save_file({NAME: torch.ones(64, 48)}, copy / "more.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.2\.mlp\.up_proj\.weight stands in two files"):
        load_target(copy)
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text((target_folder / "config.json").read_text())
    torch.save({NAME: torch.ones(64, 48)}, pickled / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"no \.safetensors file"):
        load_target(pickled)


def test_a_missing_a_truncated_and_an_unknown_checkpoint_are_named(target_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        load_target(tmp_path)
    cut = copy_with(target_folder, tmp_path / "cut", lambda t: None)
    whole = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="damaged"):
        load_target(cut)
    (cut / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(CheckpointError, match="'mamba' is not supported"):
        load_target(cut)
    (cut / "config.json").write_text("{,}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_target(cut)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vocab_size": 97}, "vocabulary of 97, target has 96"),
        ({"hidden_size": 40}, "hidden size 40, target has 48"),
        ({"num_target_layers": 7}, "made for 7 layers, target has 6"),
        ({"dflash": {"target_layer_ids": [0, 2, 6]}}, "target_layer_ids [6] are not in 0..5"),
        ({"dflash": {"target_layer_ids": [-1, 2, 5]}}, "target_layer_ids [-1] are not in 0..5"),
        ({"dflash": {"mask_token_id": 96}}, "mask_token_id 96 is outside the vocabulary of 96"),
    ],
)
def test_a_draft_that_does_not_fit_its_target_is_refused(
    options: dict[str, Any], words: str, target: Target, tmp_path: Path
) -> None:
    with pytest.raises(IncompatiblePairError) as caught:
        load_draft(tiny.write_draft(tmp_path / "draft", tiny.draft_config(**options)), target)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"rms_norm_eps": "x"},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": -1.0},
        {"rope_theta": "x"},
        {"rope_scaling": 5},
        {"layer_types": 5},
        {"block_size": 1_000_000_000},
        {"block_size": 1},
        {"intermediate_size": 2**70},
        {"num_key_value_heads": 1.5},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"dflash": {"mask_token_id": "x"}},
        {"dflash": {"mask_token_id": None}},
        {"dflash": {"target_layer_ids": ["a", 1]}},
        {"dflash": {"target_layer_ids": 5}},
        {"dflash": {"target_layer_ids": [0, 0, 0]}},
        {"dflash": {"target_layer_ids": [0.5, 1.5]}},
        {"dflash": {"attention_value_scale": "x"}},
    ],
    ids=str,
)
def test_a_config_value_that_cannot_be_is_named(options: dict[str, Any], target: Target, tmp_path: Path) -> None:
    key = next(iter(options.get("dflash", options)))
    folder = tiny.write_draft(tmp_path / "draft")
    (folder / "config.json").write_text(json.dumps(tiny.draft_config(**options)))
    with pytest.raises(CheckpointError) as caught:
        load_draft(folder, target)
    assert key.replace("rope_scaling", "rope_parameters") in str(caught.value) and "\n" not in str(caught.value)


def test_a_mask_embedding_that_is_no_plain_tensor_runs_no_code(target: Target, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (Path.touch, (tmp_path / "ran",))  # type: ignore[return-value]

    draft = tiny.write_draft(tmp_path / "draft")
    (draft / "mask_embedding.pt").write_bytes(pickle.dumps({"mask_token_id": 95, "embedding": Attack()}))
    with pytest.raises(CheckpointError, match="is not a mask embedding"):
        load_draft(draft, target)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"mask_token_id": 94, "embedding": torch.ones(48)}, "is for mask token 94"),
        ({"mask_token_id": 95, "embedding": torch.ones(47)}, "hidden size is 48"),
        ({"mask_token_id": 95, "embedding": torch.full((48,), torch.nan)}, "not finite"),
        ({"mask_token_id": 95}, "is not a mask embedding"),
        ({"mask_token_id": float("inf"), "embedding": torch.ones(48)}, "is not a mask embedding"),
        ({"mask_token_id": 95, "embedding": torch.ones(48).to_sparse()}, "must be a tensor of floats"),
        ({"mask_token_id": 95, "embedding": torch.ones(48, dtype=torch.complex64)}, "must be a tensor of floats"),
        ({"mask_token_id": 95, "embedding": [1.0] * 48}, "must be a tensor of floats"),
        ([1, 2], "is not a mask embedding"),
    ],
)
def test_a_wrong_mask_embedding_is_named(stored: Any, words: str, target: Target, tmp_path: Path) -> None:
    draft = tiny.write_draft(tmp_path / "draft")
    torch.save(stored, draft / "mask_embedding.pt")
    with pytest.raises(DFlashError) as caught:
        load_draft(draft, target)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_published_qwen3_draft_config_reads_to_its_documented_shape() -> None:
    from dflash_core.configs import draft_spec

    published = {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 5,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "rope_theta": 1e6,
        "block_size": 16,
        "num_target_layers": 36,
        "dflash_config": {"mask_token_id": 151669},
    }
    spec = draft_spec(json.loads(json.dumps(published)))
    assert spec.target_layer_ids == (1, 9, 17, 25, 33)  # the published default for 36 layers
    assert spec.block_size == 16 and all(not layer.causal and layer.window is None for layer in spec.layers)


def test_a_draft_stored_as_int8_is_half_as_large_and_nearly_the_same(tmp_path: Path) -> None:
    target = load_target(tiny.write_target(tmp_path / "target"))
    draft = load_draft(tiny.write_draft(tmp_path / "draft", mask=True), target)
    save_draft(draft, tmp_path / "bf16")
    save_draft(draft, tmp_path / "int8", int8=True)
    packed = load_draft(tmp_path / "int8", target)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("int8", "bf16")]
    assert sizes[0] < 0.75 * sizes[1]  # small matrices have large scales
    for one, other in zip(draft.parameters(), packed.parameters(), strict=True):
        assert (one - other).abs().max() <= 0.005 * one.abs().max()
