"""What MiMo with its DFlash draft takes of a host's GPUs: weights, KV of target and draft, and how many requests fit.

Arithmetic from the published configurations, checked against no GPU: what an engine reserves for graphs and buffers
is in the share that `--mem-fraction-static` leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 1e9
# Of MiMo-V2.x: 9 layers see everything (4 KV heads), 39 a window of 128 (8 KV heads); keys 192 wide, values 128.
FULL_LAYERS, FULL_HEADS, WINDOW_LAYERS, WINDOW_HEADS, WINDOW = 9, 4, 39, 8, 128
HEAD = 192 + 128
# Of its draft: 5 layers, 8 KV heads, keys and values 128 wide, a window of 1024.
DRAFT_LAYERS, DRAFT_HEADS, DRAFT_HEAD, DRAFT_WINDOW = 5, 8, 128 + 128, 1024
DRAFT_BYTES = 2.936e9  # its weights, bf16
BF16 = 2


@dataclass(frozen=True)
class Target:
    name: str
    weights: float  # bytes


@dataclass(frozen=True)
class Host:
    name: str
    gpus: int
    memory: float  # bytes of one GPU


TARGETS = (Target("MiMo-V2.5 (FP8)", 315.7e9), Target("MiMo-V2.6-Flash (MXFP4)", 177.7e9))
HOSTS = (Host("4 x H100", 4, 80e9), Host("4 x H200", 4, 141e9), Host("8 x H100", 8, 80e9), Host("8 x H200", 8, 141e9))
PROMPT_TOKENS = 4096
STATIC_SHARE = 0.85  # of the memory, for weights and KV


def kv_bytes(tokens: int, gpus: int) -> tuple[float, float]:
    """Bytes of KV that one request of so many tokens takes on all GPUs: of the target, and of the draft.

    Heads are split among the GPUs; a head that there are too few of is kept more than once.
    """
    full = FULL_LAYERS * max(FULL_HEADS, gpus) * HEAD * BF16 * tokens
    window = WINDOW_LAYERS * WINDOW_HEADS * HEAD * BF16 * min(tokens, WINDOW)
    draft = DRAFT_LAYERS * DRAFT_HEADS * DRAFT_HEAD * BF16 * min(tokens, DRAFT_WINDOW)
    return full + window, draft


def sizing_table() -> str:
    """A Markdown table: a row for each target and host."""
    rows = ["| target | host | weights + draft | left for KV | prompts of 4,096 tokens in it |", "|" + " --- |" * 5]
    for target in TARGETS:
        for host in HOSTS:
            weights, each = target.weights + DRAFT_BYTES, sum(kv_bytes(PROMPT_TOKENS, host.gpus))
            left = STATIC_SHARE * host.gpus * host.memory - weights
            held = f"{left / GB:.0f} GB" if left > 0 else "does not fit"
            prompts = f"{left / each:,.0f}" if left > 0 else "-"
            rows.append(f"| {target.name} | {host.name} | {weights / GB:.1f} GB | {held} | {prompts} |")
    sizes = [" + ".join(f"{each / 1e6:.0f}" for each in kv_bytes(PROMPT_TOKENS, gpus)) for gpus in (4, 8)]
    rows += ["", f"KV of one prompt, target + draft: {sizes[0]} MB on 4 GPUs, {sizes[1]} MB on 8."]
    return "\n".join(rows)
