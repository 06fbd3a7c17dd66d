"""MiMo's layers by the CUDA round's kernels, run by Triton's interpreter: what the plain round computes, every form."""

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
from dflash_core.sessions import Session
from tests.core import stored_values, tiny, tiny_mimo

CONTEXT = 64


def test_every_stored_value_comes_out_of_a_product_exactly() -> None:
    for found, expected in stored_values.read_by_kernels(torch.device("cpu"), torch.float32):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("form", tiny_mimo.FORMS)
def test_kernels_write_and_choose_what_the_plain_round_does(form: str, tmp_path: Path) -> None:
    stored, changes = tiny_mimo.few_layers(form)
    target = load_target(tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5, **changes))
    options = {"num_hidden_layers": 1, "num_target_layers": 3, "block_size": 4}
    nested = {"target_layer_ids": [0, 2], "block_size": 4, "swa_window_size": 12}
    config = tiny_mimo.draft_config(dflash=nested, **options)
    draft = load_draft(tiny.write_draft(tmp_path / "draft", config, mask=True), target)
    decoders = [BlockDecoder(target, draft), CudaDecoder(target, draft, CONTEXT)]
    sessions = [Session(target, draft, CONTEXT) for _ in decoders]
    prompt = torch.randint(0, 90, (25,), generator=torch.Generator().manual_seed(3)).tolist()
    for decoder, session in zip(decoders, sessions, strict=True):
        decoder.prefill(session, prompt[:22])  # more rows than a block, and than the window
        decoder.prefill(session, prompt[22:])  # an edit: forced rows
    anchors = [7, 7]
    for width in (4, 1, 2):
        rounds = [
            decoder.round(session, anchor, width)
            for decoder, session, anchor in zip(decoders, sessions, anchors, strict=True)
        ]
        assert rounds[0] == rounds[1]
        anchors = [done.tokens[-1] for done in rounds]
    live = sessions[0].length
    for name in ("target_cache", "draft_cache"):
        plain, kernels = (getattr(session, name) for session in sessions)
        for mine, theirs in zip((*plain.keys, *plain.values), (*kernels.keys, *kernels.values), strict=True):
            torch.testing.assert_close(mine[:, :live], theirs[:, :live], atol=2e-4, rtol=1e-3)
