"""z-lab's own draft model beside ours on the same random weights, for every kind of layer.

Their package is no part of ours: the tests are skipped where it is not installed (`pip install --no-deps dflash`).
`python -m tests.core.test_zlab` prints what `benchmarks/results/` holds of it.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from dflash_core import Engine, EngineOptions
from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.sessions import Session
from tests.core import tiny
from tests.core.test_decoding import generate, prompts

SLIDING = "sliding_attention"
WINDOW: dict[str, Any] = {"sliding_window": 9, "use_sliding_window": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "full layers": {},
    "full layers, causal": {"is_causal": True},
    "sliding layers, causal by default": {"layer_types": [SLIDING] * 3, **WINDOW},
    "sliding layers, not causal": {"layer_types": [SLIDING] * 3, "is_causal": False, **WINDOW},
    "full and sliding layers": {"layer_types": ["full_attention", SLIDING, SLIDING], **WINDOW},
}
BLOCKS = (4, 8, 16)
CONTEXTS = (5, 17, 40, 90)
# Not the last layer: their loop takes features from `hidden_states`, whose last entry is normed already.
TAPPED = [0, 2, 4]

needs_theirs = pytest.mark.skipif(find_spec("dflash") is None, reason="z-lab's package dflash is not installed")


class SideBySide:
    """A random Qwen3 of 6 layers and a draft of 3 over it, each loaded by both sides in fp32."""

    def __init__(self, folder: Path, variant: str, block: int) -> None:
        from dflash.model import DFlashDraftModel

        options = {"layer_types": ["full_attention"] * 3} | VARIANTS[variant]
        config = tiny.draft_config(**options, block_size=block, dflash={"target_layer_ids": TAPPED})
        self.target_folder = tiny.write_target(folder / "target", "qwen3")
        self.draft_folder = tiny.write_draft(folder / "draft", config)
        left_out = ("architectures", "model_type", "dflash_config", "rope_theta", "block_size", "num_target_layers")
        theirs = transformers.Qwen3Config(
            **{key: value for key, value in config.items() if key not in left_out},
            rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]},
        )
        theirs.dflash_config = {**config["dflash_config"], "block_size": block}
        theirs.num_target_layers = tiny.LAYERS
        theirs.is_causal = options.get("is_causal")
        self.their_draft = DFlashDraftModel(theirs).eval()
        self.their_draft.load_state_dict(load_file(self.draft_folder / "model.safetensors"), strict=True)
        self.their_target = transformers.AutoModelForCausalLM.from_pretrained(
            self.target_folder, dtype=torch.float32
        ).eval()
        self.target = load_target(self.target_folder)
        self.draft = load_draft(self.draft_folder, self.target)
        self.block = block

    @torch.inference_mode()
    def differences(self) -> tuple[float, float]:
        """Between the hidden states of a block, behind contexts of several lengths; and the largest state."""
        from dflash.model import extract_context_feature

        worst = largest = 0.0
        for seed, length in enumerate(CONTEXTS):
            text = torch.randint(0, 90, (length + 1,), generator=torch.Generator().manual_seed(seed)).tolist()
            session = Session(self.target, self.draft, 128)
            BlockDecoder(self.target, self.draft).prefill(session, text[:length])
            positions = session.next_positions(self.block)
            x = self.draft.block_input(self.target.embed(torch.tensor([text[length:]])))
            ours = self.draft(x, positions, session.draft_attention(positions))[0]
            states = self.their_target(torch.tensor([text[:length]]), output_hidden_states=True).hidden_states
            theirs = self.their_draft(
                target_hidden=extract_context_feature(states, TAPPED),
                noise_embedding=x,
                position_ids=torch.arange(length + self.block)[None],
            )[0, -self.block :]
            worst = max(worst, float((ours - theirs).abs().max()))
            largest = max(largest, float(theirs.abs().max()))
        return worst, largest

    def their_text(self, prompt: list[int], count: int) -> list[int]:
        from dflash.model import dflash_generate

        with torch.inference_mode():
            found = dflash_generate(self.their_draft, self.their_target, torch.tensor([prompt]), count, None)
        text: list[int] = found[0, len(prompt) :].tolist()
        return text

    def our_text(self, prompt: list[int], count: int) -> list[int]:
        options = EngineOptions(device="cpu", dtype="float32", context=256)
        engine = Engine.load(self.target_folder, self.draft_folder, tiny.token_bytes(), options)
        return generate(engine, prompt, count, draft="on")


@needs_theirs
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_block_is_what_the_reference_makes_of_it(variant: str, block: int, tmp_path: Path) -> None:
    worst, largest = SideBySide(tmp_path, variant, block).differences()
    assert worst <= 2e-5 * largest


@needs_theirs
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_text_of_the_loop_is_that_of_the_reference(variant: str, tmp_path: Path) -> None:
    both = SideBySide(tmp_path, variant, 8)
    prompt = prompts(1, 30)[0]
    assert both.our_text(prompt, 40) == both.their_text(prompt, 40)


def main() -> None:
    rows: list[dict[str, Any]] = []
    for variant in VARIANTS:
        for block in BLOCKS:
            with tempfile.TemporaryDirectory() as folder:
                both = SideBySide(Path(folder), variant, block)
                worst, largest = both.differences()
                row: dict[str, Any] = {"variant": variant, "block": block, "largest_difference": worst}
                row["largest_hidden_state"] = largest
                prompt = prompts(1, 30)[0]
                row["texts_equal"] = both.our_text(prompt, 40) == both.their_text(prompt, 40)
                rows.append(row)
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "dflash")}
    print(
        json.dumps(
            {
                "what": "z-lab's draft model (package dflash) and ours on the same small random weights, fp32, CPU",
                "command": "python -m tests.core.test_zlab",
                "date": datetime.date.today().isoformat(),
                "versions": versions,
                "contexts": CONTEXTS,
                "variants": rows,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
