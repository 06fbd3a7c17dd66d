"""Falls into each documented trap of MiMo, one after the other, and looks whether a test fails.

`python -m tests.core.traps [WORDS]` works on a copy of the project and prints a line a trap (of those with one of the
words); it ends with 1 when one went unseen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TARGET, CHECKPOINTS, DRAFT = "test_mimo_target.py", "test_mimo_checkpoints.py", "test_mimo_draft.py"


class Trap(NamedTuple):
    """`right` in `file` becomes `wrong`; one of the tests must see it."""

    words: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


TRAPS = (
    Trap(
        "fused qkv read as one [queries, keys, values] and not as shards",
        "checkpoints/pieces.py",
        "                first = shard * (q + k + v) + start",
        "                first = start * self.shards + shard * size",
        (CHECKPOINTS,),
    ),
    Trap(
        "scales of fused qkv read as one grid and not as one a shard",
        "checkpoints/pieces.py",
        "row // of_shard * grid + row % of_shard // block_rows",
        "row // block_rows",
        (CHECKPOINTS,),
    ),
    Trap(
        "shards of fused qkv taken from the config where the index says otherwise",
        "checkpoints/target.py",
        'tensors.metadata.get("tp_size", config.get("num_key_value_heads") or 1)',
        'config.get("num_key_value_heads") or 1',
        (CHECKPOINTS,),
    ),
    Trap(
        "rows of FP8 that straddle two blocks given the scale of the first",
        "checkpoints/as_stored.py",
        "[start // block_rows for start in range(0, rows, unit)]",
        "[start // block_rows // 2 for start in range(0, rows, unit)]",
        (CHECKPOINTS,),
    ),
    Trap(
        "MXFP4 nibbles swapped",
        "layers/stored_weights.py",
        "values[(packed & 15).int()], values[(packed >> 4).int()]",
        "values[(packed >> 4).int()], values[(packed & 15).int()]",
        (CHECKPOINTS,),
    ),
    Trap(
        "MXFP4 exponents off by one",
        "layers/stored_weights.py",
        "scales.float() - 127",
        "scales.float() - 128",
        (CHECKPOINTS,),
    ),
    Trap(
        "layers for multi-token prediction and encoders wanted",
        "checkpoints/target.py",
        'return spec.family.startswith("mimo") and not',
        'return spec.family == "" and not',
        (CHECKPOINTS,),
    ),
    Trap(
        "the last tapped layer taken after the final norm",
        "target.py",
        "outputs[layer.index] = x.to(self.device)",
        "outputs[layer.index] = self.norm(x) if layer.index == len(self.layers) - 1 else x",
        (TARGET,),
    ),
    Trap(
        "features taken before their layer",
        "target.py",
        "            if layer.index in tapped:\n                outputs[layer.index] = x.to(self.device)",
        "            if layer.index + 1 in tapped:\n                outputs[layer.index + 1] = x.to(self.device)\n"
        "            if layer.index == 0 in tapped:\n                outputs[0] = self.embed(tokens)",
        (TARGET,),
    ),
    Trap(
        "sinks of the target unheard",
        "mimo_config.py",
        '"sinks": bool(config.get("add_swa_attention_sink_bias", True))',
        '"sinks": False',
        (TARGET,),
    ),
    Trap(
        "sinks left in the weights after the softmax",
        "layers/attention.py",
        "torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]",
        "scores.softmax(dim=-1)",
        (TARGET,),
    ),
    Trap(
        "value scale of the target forgotten",
        "mimo_config.py",
        '"value_scale": positive("attention_value_scale", scale, 1.0)',
        '"value_scale": 1.0',
        (TARGET,),
    ),
    Trap(
        "whole heads turned in the target",
        "mimo_config.py",
        "dim = int(head_dim * positive",
        "dim = head_dim or int(head_dim * positive",
        (TARGET,),
    ),
    Trap(
        "window counts its query twice",
        "mimo_config.py",
        'whole("sliding_window_size", before) + 1',
        'whole("sliding_window_size", before)',
        (TARGET,),
    ),
    Trap(
        "window layers turned by the global base",
        "mimo_config.py",
        'own.get("rope_theta") if by_kind else config.get("swa_rope_theta")',
        'own.get("rope_theta")',
        (TARGET,),
    ),
    Trap(
        "window layers given the global key-value heads",
        "mimo_config.py",
        'value = config.get(f"swa_{key}") if windowed else None',
        "value = None",
        (TARGET,),
    ),
    Trap(
        "values as wide as keys",
        "mimo_config.py",
        'own("v_head_dim", config.get("v_head_dim") or head_dim)',
        "head_dim",
        (TARGET,),
    ),
    Trap(
        "the first layer taken for a mixture",
        "mimo_config.py",
        'return _kinds("moe_layer_freq", frequency, count, {0: False, 1: True})',
        "return [True] * count",
        (TARGET,),
    ),
    Trap(
        "the router's bias joins the weights",
        "layers/moe.py",
        "weights = scores.gather(1, ids)",
        "weights = (scores + choice_bias.float()).gather(1, ids)",
        (TARGET,),
    ),
    Trap(
        "the router's bias left out of the choice",
        "layers/moe.py",
        "(scores + choice_bias.float()).topk",
        "scores.topk",
        (TARGET,),
    ),
    Trap("the router's weights not normalized", "layers/moe.py", "    if spec.normalized:", "    if False:", (TARGET,)),
    Trap(
        "a softmax router",
        "layers/moe.py",
        "scores = logits.float().sigmoid()",
        "scores = logits.float().softmax(dim=-1)",
        (TARGET,),
    ),
    Trap(
        "the trained mask left unread",
        "checkpoints/draft.py",
        "    if mask is None:\n",
        "    if True:\n",
        (DRAFT, "test_draft.py"),
    ),
    Trap("sinks of the draft unheard", "configs.py", "sinks=bool(value(", "sinks=False and bool(value(", (DRAFT,)),
    Trap(
        "value scale of the draft forgotten",
        "configs.py",
        'value_scale=positive("attention_value_scale", value("attention_value_scale"), 1.0)',
        "value_scale=1.0",
        (DRAFT,),
    ),
    Trap(
        "whole heads turned in the draft",
        "configs.py",
        'dim=int(head_dim * positive("partial_rotary_factor", factor, 1.0))',
        "dim=head_dim",
        (DRAFT,),
    ),
    Trap(
        "the draft's window taken for causal",
        "configs.py",
        "implied_causal = False  #",
        "implied_causal = True  #",
        (DRAFT, "test_draft.py"),
    ),
    Trap(
        "the draft's window left out",
        "configs.py",
        '"window": whole("sliding_window", window) if sliding else None',
        '"window": None',
        (DRAFT, "test_draft.py"),
    ),
    Trap(
        "a rotary base that the profile names unheard",
        "configs.py",
        "base_override or found.get",
        "found.get",
        (DRAFT, "test_rotary_trial.py"),
    ),
    Trap(
        "the context normed by the layer as block rows are",
        "draft.py",
        "project_keys_values(context, rotary)",
        "project_keys_values(layer.input_layernorm(context), rotary)",
        ("test_draft.py",),
    ),
    Trap(
        "the context filed one position late",
        "block_decoder.py",
        "self.draft.write_context(features, positions, session.draft_cache)",
        "self.draft.write_context(features, positions + 1, session.draft_cache)",
        ("test_draft.py", "test_zlab.py", "test_decoding.py"),
    ),
    Trap(
        "a draft of another mask taken without a word",
        "compatibility.py",
        "if mimo and mask == _QWEN_MASK:",
        "if False:",
        ("test_compatibility.py",),
    ),
    Trap(
        "a draft without its mask taken without a word",
        "compatibility.py",
        "    if mimo:\n",
        "    if False:\n",
        ("test_compatibility.py",),
    ),
    Trap(
        "another revision of the target taken without a word",
        "compatibility.py",
        "if revision and found and not",
        "if False and not",
        ("test_compatibility.py",),
    ),
)


def main(wanted: list[str]) -> int:
    unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("dflash_core", "server", "tests", "assets"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for trap in TRAPS:
            if wanted and not any(word in trap.words for word in wanted):
                continue
            seen = _falls(trap, copy)
            unseen += not seen
            print(f"{'seen' if seen else 'NOT SEEN'}: {trap.words}", flush=True)
    return 1 if unseen else 0


def _falls(trap: Trap, copy: Path) -> bool:
    """Whether a test fails with the trap's wrong line in the place of the right one."""
    file = copy / "dflash_core" / trap.file
    text = file.read_text(encoding="utf-8")
    assert text.count(trap.right) == 1, f"{trap.file} has changed: {trap.right!r}"
    file.write_text(text.replace(trap.right, trap.wrong), encoding="utf-8")
    tests = [f"tests/core/{name}" for name in trap.tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, check=False, capture_output=True
        )
    finally:
        file.write_text(text, encoding="utf-8")
    assert done.returncode in (0, 1), done.stdout.decode()[-2000:]
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
