"""Packed weights: close to the weights they were made of, the same for a row whatever stands beside it, lossless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dflash_core import BlockDecoder, DFlashError, Engine, EngineOptions
from dflash_core.checkpoints.draft import load_draft
from dflash_core.engine import Precision, load_in_precision
from dflash_core.layers.packed_linear import GROUP, PackedHead, PackedInt4, PackedInt8
from dflash_core.sessions import Session
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
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
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        for rows in (2, 3, 8, 16, packed.few_rows):
            assert torch.equal(packed(x[:rows])[:1], packed(x[:1]))


@pytest.mark.parametrize("make", [PackedInt8, PackedInt4])
def test_many_rows_are_computed_from_the_same_weights_as_few(make: Callable[[torch.Tensor], torch.nn.Module]) -> None:
    packed = make(weight_of(96, 128))
    x = torch.randn(100, 128, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        many, few = packed(x), torch.cat([packed(part) for part in x.split(20)])
    assert (many - few).norm() <= 0.01 * few.norm(), "nothing but the rounding of activations to bf16"


def test_the_best_tokens_of_a_packed_head_get_the_logits_of_its_whole_weight() -> None:
    weight = weight_of(500, 64)
    x = torch.randn(1, 7, 64, generator=torch.Generator().manual_seed(6)) * 3
    with torch.inference_mode():
        head = PackedHead(weight)
        found, exact = head(x), x @ weight.T
        assert torch.equal(found.argmax(-1), exact.argmax(-1))
        torch.testing.assert_close(found.amax(-1), exact.amax(-1))
        assert torch.equal(head(x[:, 2:3]), found[:, 2:3])


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


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_logits_of_the_embedded_pair_are_the_same_bit_for_bit_at_every_width(
    dtype: Precision, embedded_target: Path
) -> None:
    target = load_in_precision(embedded_target, dtype, torch.device("cpu"))
    draft = load_draft(asset("embedded", "draft"), target)
    session, decoder = Session(target, draft, 256), BlockDecoder(target, draft)
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    tokens = [0, *tokenizer.encode(Path(__file__).read_text(encoding="utf-8"))]
    for start in (60, 117):  # the first crosses from one bucket of keys into the next
        session.rewind(0)
        decoder.prefill(session, tokens[:start])
        found = {}
        for width in (1, 2, 4, 8):
            session.rewind(start)
            rows = []
            for first in range(start, start + 8, width):
                block = tokens[first : first + width]
                with torch.inference_mode():
                    hidden = decoder._read(session, torch.tensor([block]), session.next_positions(width))
                    rows.append(target.logits(hidden)[0])
                session.commit(block)
            found[width] = torch.cat(rows)
        assert all(torch.equal(found[width], found[1]) for width in (2, 4, 8))


def test_packed_weights_on_another_device_are_refused_in_one_line(pair: tuple[Path, Path]) -> None:
    with pytest.raises(DFlashError, match="dtype int8 is for CPUs"):
        Engine.load(*pair, tiny.token_bytes(), EngineOptions(device="meta", dtype="int8"))
