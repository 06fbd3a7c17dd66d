"""Packed weights: close to the weights they were made of, the same for a row whatever stands beside it, lossless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dflash_core import DFlashError, Engine, EngineOptions
from dflash_core.layers.packed_linear import GROUP, PackedInt4, PackedInt8
from tests.core import tiny
from tests.core.test_decoding import generate, prompts

WIDE = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "num_attention_heads": 4}


def weight_of(out: int, columns: int) -> torch.Tensor:
    return torch.randn(out, columns, generator=torch.Generator().manual_seed(2)) * 0.1


@pytest.mark.parametrize(("make", "tolerance"), [(PackedInt8, 0.02), (PackedInt4, 0.15)])
def test_a_packed_product_is_close_to_that_of_its_weights(
    make: Callable[[torch.Tensor, torch.Tensor], torch.nn.Module], tolerance: float
) -> None:
    weight, bias = weight_of(96, 128), weight_of(1, 96)[0]
    x = torch.randn(2, 5, 128, generator=torch.Generator().manual_seed(3))
    exact = x @ weight.T + bias
    with torch.inference_mode():
        found = make(weight, bias)(x)
    assert found.shape == exact.shape and found.dtype == x.dtype
    assert (found - exact).norm() <= tolerance * exact.norm()


@pytest.mark.parametrize("make", [PackedInt8, PackedInt4])
def test_a_row_gets_the_same_result_bit_for_bit_alone_and_among_others(
    make: Callable[[torch.Tensor], torch.nn.Module],
) -> None:
    packed = make(weight_of(96, 128))
    x = torch.randn(40, 128, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        for rows in (2, 3, 8, 40):
            assert torch.equal(packed(x[:rows])[:1], packed(x[:1]))


def test_weights_of_sixteen_steps_a_group_survive_int4_but_for_rounding_to_bf16() -> None:
    steps = torch.randint(0, 16, (32, 2, GROUP), generator=torch.Generator().manual_seed(5)).float()
    steps[..., 0], steps[..., 1] = 0, 15  # the whole range is used, as by the quantizer of a GGUF
    weight = (steps * 0.25 - 2).view(32, 2 * GROUP)  # scale and offset that bf16 holds exactly
    with torch.inference_mode():
        rows = torch.eye(2 * GROUP)
        assert torch.equal(PackedInt4(weight)(rows), weight.T.contiguous())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    config = tiny.draft_config(hidden_size=64, head_dim=16, num_attention_heads=4)
    return tiny.write_target(folder / "target", **WIDE), tiny.write_draft(folder / "draft", config)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_text_of_a_packed_target_is_the_same_with_and_without_the_draft(dtype: str, pair: tuple[Path, Path]) -> None:
    options = EngineOptions(device="cpu", dtype=dtype, context=256)  # type: ignore[arg-type]
    engine = Engine.load(*pair, tiny.token_bytes(), options)
    plain = Engine.load(*pair, tiny.token_bytes(), EngineOptions(device="cpu", dtype="float32", context=256))
    described = engine.describe()
    assert described["dtype"] == dtype and described["memory_bytes"] < plain.describe()["memory_bytes"]
    for prompt in prompts(4):
        expected = generate(engine, prompt, 40, draft="off")
        assert all(generate(engine, prompt, 40, draft="on", block_size=width) == expected for width in (2, 5, 8))


def test_packed_weights_on_another_device_are_refused_in_one_line(pair: tuple[Path, Path]) -> None:
    with pytest.raises(DFlashError, match="dtype int8 is for CPUs"):
        Engine.load(*pair, tiny.token_bytes(), EngineOptions(device="meta", dtype="int8"))
