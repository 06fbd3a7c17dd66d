"""Layers shared out over devices give bit for bit what one device gives: tokens, acceptance, keys and values.

Two stages on one device take the same steps as on two: other buffers, other graphs, copies between. Real devices:
test_gpu.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dflash_core import Engine, EngineOptions, GenerationRequest
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.draft import Draft
from dflash_core.errors import DFlashError
from dflash_core.kv_cache import KVCache
from dflash_core.placement import Placement, bytes_by_parameter, candidate_devices, shared_out
from dflash_core.sessions import Session
from dflash_core.sharing import RESERVED, share_out
from dflash_core.target import Target
from tests.core import tiny, tiny_mimo
from tests.core.test_decoding import generate, prompts, run

CONTEXT = 64
PROMPT = torch.randint(0, 90, (25,), generator=torch.Generator().manual_seed(3)).tolist()


def mimo(folder: Path) -> tuple[Target, Draft]:
    """A global and dense layer, a windowed mixture, a global mixture; the first and the last are tapped."""
    stored, changes = tiny_mimo.few_layers("FP8")
    target = load_target(tiny_mimo.write_published(folder / "target", stored, **tiny_mimo.V2_5, **changes))
    nested = {"target_layer_ids": [2, 0], "block_size": 4, "swa_window_size": 12}
    options = {"num_hidden_layers": 1, "num_target_layers": 3, "block_size": 4}
    config = tiny_mimo.draft_config(dflash=nested, **options)
    return target, load_draft(tiny.write_draft(folder / "draft", config, mask=True), target)


def dense(folder: Path) -> tuple[Target, Draft]:
    target = load_target(tiny.write_target(folder / "target", "qwen3", num_hidden_layers=3))
    options = {"num_hidden_layers": 1, "num_target_layers": 3, "block_size": 4}
    config = tiny.draft_config(dflash={"target_layer_ids": [0, 1]}, **options)
    return target, load_draft(tiny.write_draft(folder / "draft", config, mask=True), target)


@pytest.mark.parametrize(
    ("made", "stages"),
    [(mimo, (range(2), range(2, 3))), (dense, (range(1), range(1, 2), range(2, 3)))],
    ids=["a MiMo in two", "a dense target in three"],
)
def test_kernels_in_several_stages_give_what_one_gives(
    made: Callable[[Path], tuple[Target, Draft]], stages: tuple[range, ...], tmp_path: Path
) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    if os.environ.get("TRITON_INTERPRET") != "1":  # conftest.py
        pytest.skip("kernels are compiled here: test_gpu.py")
    from dflash_core.cuda_decoder import CudaDecoder

    target, draft = made(tmp_path)
    decoders = [CudaDecoder(target, draft, CONTEXT)]
    target.stages = stages
    decoders.append(CudaDecoder(target, draft, CONTEXT))
    sessions = [Session(target, draft, CONTEXT) for _ in decoders]
    for decoder, session in zip(decoders, sessions, strict=True):
        decoder.prefill(session, PROMPT[:22])  # more rows than a block, and than the window
        decoder.prefill(session, PROMPT[22:])  # an edit: forced rows
    anchors = [7, 7]
    for width, choose in ((4, None), (2, sharp)):
        rounds = [
            decoder.round(session, anchor, width, choose)
            for decoder, session, anchor in zip(decoders, sessions, anchors, strict=True)
        ]
        assert rounds[0] == rounds[1]
        anchors = [done.tokens[-1] for done in rounds]
    assert_equal_caches(*sessions)


def sharp(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Stands for sampling: a choice made from all logits."""
    return (logits * 2).argmax(dim=-1)


def assert_equal_caches(one: Session, other: Session) -> None:
    live = one.length
    assert one.tokens == other.tokens
    for name in ("target_cache", "draft_cache"):
        mine, theirs = (getattr(session, name) for session in (one, other))
        for a, b in zip((*mine.keys, *mine.values), (*theirs.keys, *theirs.values), strict=True):
            assert torch.equal(a[:, :live], b[:, :live])


def test_layers_are_shared_out_by_their_bytes() -> None:
    even, fullest = share_out([10] * 8, 0, [100, 100])
    assert even == (range(4), range(4, 8)) and fullest == 0.4
    # The first device also holds embedding, head and draft.
    assert share_out([10] * 8, 40, [100, 100])[0] == (range(2), range(2, 8))
    # A device with half the memory takes about half as much.
    assert share_out([10] * 9, 0, [100, 50])[0] == (range(6), range(6, 9))
    # A heavy layer counts for what it takes, and no device is without a layer.
    assert share_out([10, 10, 70, 10], 0, [100, 100, 100])[0] == (range(2), range(2, 3), range(3, 4))
    assert share_out([10, 10], 500, [100, 100])[0] == (range(1), range(1, 2))


def test_as_few_devices_are_taken_as_hold_the_target(tmp_path: Path) -> None:
    target, _ = dense(tmp_path)
    total = sum(bytes_by_parameter(target, target.dtype).values())
    assert total == sum(parameter.nbytes for parameter in target.parameters())
    devices = [torch.device("cuda", index) for index in range(4)]

    def placed(room: float, exactly: bool = False) -> Placement:
        place = shared_out(
            devices, exactly=exactly, positions=0, beside=0, free=lambda device: RESERVED + round(room * total)
        )
        return place(target, target.dtype)

    assert placed(1.1).devices == tuple(devices[:1]) and placed(1.1).stages == (range(3),)
    assert placed(0.7).devices == tuple(devices[:2])
    assert placed(0.1).devices == tuple(devices[:3])  # which do not hold it either: the ladder is told of that
    found = placed(0.7)
    assert found.device_of("embed_tokens") == found.device_of("lm_head.weight") == devices[0]
    assert found.device_of("layers.2.mlp.down_proj.weight") == devices[1]
    with pytest.raises(DFlashError, match="4 devices are more than the target's 3 layers"):
        placed(1.1, exactly=True)
    assert candidate_devices("cuda:1", ()) == [torch.device("cuda:1")]
    assert candidate_devices("auto", ("cuda:3", "cuda:1")) == [torch.device("cuda:3"), torch.device("cuda:1")]


def loaded(folder: Path, made: Callable[[Path], tuple[Target, Draft]], **options: object) -> Engine:
    if not folder.exists():
        made(folder)
    chosen = EngineOptions(device="cpu", dtype="float32", context=128, **options)  # type: ignore[arg-type]
    return Engine.load(folder / "target", folder / "draft", tiny.token_bytes(), chosen)


@pytest.mark.parametrize("made", [mimo, dense])
def test_an_engine_over_two_stages_gives_the_text_of_one(
    made: Callable[[Path], tuple[Target, Draft]], tmp_path: Path
) -> None:
    one = loaded(tmp_path / "pair", made)
    two = loaded(tmp_path / "pair", made, devices=("cpu", "cpu"))
    assert len(two._target.stages) == 2 and len(one._target.stages) == 1
    for prompt in prompts(3):
        for options in ({"draft": "on"}, {"draft": "off"}, {"draft": "on", "temperature": 0.8, "seed": 5}):
            assert generate(two, prompt, 24, **options) == generate(one, prompt, 24, **options)


def test_what_memory_is_given_up_is_given_up_on_all_devices(tmp_path: Path) -> None:
    whole = loaded(tmp_path / "pair", mimo, devices=("cpu", "cpu"))
    session = whole.sessions.acquire(None, [0])
    assert isinstance(session.target_cache, KVCache)
    kv, all_of_it = session.nbytes, whole.describe()["memory_bytes"]
    assert len(session.target_cache.keys) == sum(len(stage) for stage in whole._target.stages)
    short = loaded(tmp_path / "pair", mimo, devices=("cpu", "cpu"), memory_limit=all_of_it - 2 * kv)
    assert short.describe()["sessions"] == 2
    assert short.describe()["memory_bytes"] == all_of_it - 2 * kv
    text = generate(short, prompts(1)[0], 16)
    short._hold(short._held.smaller())  # a rung down: the sessions of both devices are made anew
    assert short.describe()["sessions"] == 1 and generate(short, prompts(1)[0], 16) == text


@pytest.mark.parametrize("units", range(6))
def test_cancelled_at_any_unit_the_session_is_good_for_the_next_request(units: int, tmp_path: Path) -> None:
    engine = loaded(tmp_path / "pair", mimo, devices=("cpu", "cpu"))
    prompt = prompts(1)[0]
    expected = generate(engine, prompt, 24)
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=60, session="s", draft="on"))
    for _ in range(units):
        engine.step()
    generation.cancel()
    run(engine, generation)
    assert generation.finish == "cancelled"
    assert generate(engine, prompt, 24, session="s", draft="on") == expected
