"""The CUDA round's kernels, run by Triton's interpreter: the same tokens, keys and values as the plain round.

Graphs, and the compiled kernels, are tested on a device (test_gpu.py); this runs the same code without one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton comes for Linux alone")
if os.environ.get("TRITON_INTERPRET") != "1":  # conftest.py
    pytest.skip("kernels are compiled here: test_gpu.py", allow_module_level=True)

import torch

from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.cuda_decoder import CudaDecoder
from dflash_core.kernels.verification import accept, argmax_of_tiles
from dflash_core.kv_cache import KVCache
from dflash_core.sessions import Session
from dflash_core.verification import longest_right_prefix
from tests.core import tiny

CONTEXT = 96
WINDOWED = {
    "layer_types": ["sliding_attention"],
    "sliding_window": 12,
    "dflash": {
        "is_causal": False,
        "attention_sink_bias": True,
        "attention_value_scale": 0.6,
        "target_layer_ids": [1, 0],
    },
}
PLAIN = {"dflash": {"target_layer_ids": [0, 1]}}


@pytest.mark.parametrize(
    ("family", "draft_options"),
    [("llama", WINDOWED), ("qwen2", PLAIN), ("qwen3", PLAIN)],
    ids=["llama", "qwen2", "qwen3"],
)
def test_kernels_write_and_choose_what_the_plain_round_does(
    tmp_path: Path, family: str, draft_options: dict[str, object]
) -> None:
    mixture = tiny.MIXTURE if family == "qwen3_moe" else {}
    target = load_target(tiny.write_target(tmp_path / "target", family, num_hidden_layers=2, **mixture))
    options = {"num_hidden_layers": 1, "num_target_layers": 2, "block_size": 4} | draft_options
    draft = load_draft(tiny.write_draft(tmp_path / "draft", tiny.draft_config(**options), mask=True), target)
    decoders = [BlockDecoder(target, draft), CudaDecoder(target, draft, CONTEXT)]
    sessions = [Session(target, draft, CONTEXT) for _ in decoders]
    prompt = torch.randint(0, 90, (25,), generator=torch.Generator().manual_seed(3)).tolist()
    for decoder, session in zip(decoders, sessions, strict=True):
        decoder.prefill(session, prompt[:19])  # more rows than a block: the library's products
        decoder.prefill(session, prompt[19:])  # an edit: forced rows
    anchors = [7, 7]
    for width, choose in ((4, None), (4, _sharp), (1, None), (3, None), (4, None)):
        rounds = [
            decoder.round(session, anchor, width, choose)
            for decoder, session, anchor in zip(decoders, sessions, anchors, strict=True)
        ]
        assert rounds[0] == rounds[1]
        anchors = [done.tokens[-1] for done in rounds]
    assert sessions[0].tokens == sessions[1].tokens
    live = sessions[0].length
    for name in ("target_cache", "draft_cache"):
        plain, kernels = (getattr(session, name) for session in sessions)
        _assert_close(plain, kernels, live)


def _sharp(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Stands for sampling: a choice made from all logits."""
    return (logits * 2).argmax(dim=-1)


def _assert_close(a: KVCache, b: KVCache, live: int) -> None:
    for mine, theirs in zip((*a.keys, *a.values), (*b.keys, *b.values), strict=True):
        torch.testing.assert_close(mine[:, :live], theirs[:, :live], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("right", range(4))
def test_acceptance_on_the_device_is_the_longest_right_prefix(right: int) -> None:
    block = torch.tensor([5, 11, 12, 13, 0, 0, 0, 0])
    chosen = torch.tensor([11, 12, 13, 14])
    if right < 3:
        chosen[right] = 77  # and what follows agrees again, which must not count
    state, result = torch.tensor([40, 4]), torch.zeros(9, dtype=torch.int64)
    expected = int(longest_right_prefix(block[None, :4], chosen[None]))
    accept(block, chosen, state[:1], result)
    assert expected == right
    assert result[:5].tolist() == [right, *chosen.tolist()]
    assert state.tolist() == [40 + right + 1, 4]
    assert block[0] == chosen[right]


def test_the_first_of_equal_logits_is_chosen_and_skipped_rows_stay() -> None:
    best = torch.tensor([[1.0, 2.0, 3.0], [4.0, 2.0, 3.5], [4.0, 1.0, 3.5]])
    indices = torch.tensor([[3, 5, 6], [40, 50, 60], [400, 500, 600]], dtype=torch.int32)
    chosen = torch.tensor([9, 9, 9])
    argmax_of_tiles(best, indices, chosen, skipped=1)
    assert chosen.tolist() == [9, 5, 60]
