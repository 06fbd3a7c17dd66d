"""How long a start takes: from checkpoints on disk to the first block, beside a plain copy of the same bytes.

Run as a program in a process of its own, since what is measured is a process that has nothing yet:
`python -m dflash_core.benchmarks.start FOLDER` prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dflash_core.benchmarks.geometry import Geometry, random_pair
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.names import checkpoint_names, part_rows
from dflash_core.checkpoints.target import load_target
from dflash_core.draft import Draft
from dflash_core.policy import verify_widths
from dflash_core.runtime import decoder_for
from dflash_core.sessions import Session
from dflash_core.target import Target

_SHARD_BYTES = 4 << 30
_CONTEXT = 1280
_PROMPT = 1024


def measure_start(geometry: Geometry, folder: Path) -> dict[str, Any]:
    """Writes a random pair of these shapes into `folder` and starts from it twice; the second finds compiled kernels.

    Seconds: `copy` reads every byte of both checkpoints into the device and does nothing with it.
    """
    write_pair(*random_pair(geometry, 8, _CONTEXT, torch.device("cuda"), torch.bfloat16), geometry, folder)
    torch.cuda.empty_cache()
    command = [sys.executable, "-m", "dflash_core.benchmarks.start", str(folder)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(2)]
    return {"first": runs[0], "second": runs[1]}


def write_pair(target: Target, draft: Draft, geometry: Geometry, folder: Path) -> None:
    """Writes both in the published layout, under `target` and `draft`, in shards as published ones come."""
    layer = geometry.layer
    shapes = {
        "hidden_size": layer.hidden_size,
        "num_attention_heads": layer.num_heads,
        "num_key_value_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim,
        "rms_norm_eps": layer.rms_norm_eps,
        "rope_theta": geometry.rotary_base,
        "vocab_size": geometry.vocab_size,
        "max_position_embeddings": _CONTEXT + 64,
    }
    family = "qwen3" if layer.qk_norm else "qwen2" if layer.qkv_bias else "llama"
    own = {
        "model_type": family,
        "num_hidden_layers": geometry.layers,
        "intermediate_size": layer.intermediate_size,
        "tie_word_embeddings": geometry.tied_embeddings,
    }
    _write(target, folder / "target", shapes | own, "model.")
    nested = {"target_layer_ids": list(draft.spec.target_layer_ids), "mask_token_id": 0}
    _write(
        draft,
        folder / "draft",
        shapes
        | {
            "model_type": "qwen3",
            "num_hidden_layers": geometry.draft_layers,
            "intermediate_size": draft.spec.layers[0].intermediate_size,
            "num_target_layers": geometry.layers,
            "block_size": draft.spec.block_size,
            "dflash_config": nested,
        },
        "",
    )


def _write(module: Any, folder: Path, config: dict[str, Any], prefix: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shard: dict[str, Tensor] = {}
    shards = 0
    for name, parameter in _published(module):
        shard[name if name.startswith("lm_head") else prefix + name] = parameter.cpu().contiguous()
        if sum(t.nbytes for t in shard.values()) > _SHARD_BYTES:
            save_file(shard, folder / f"model-{shards:05d}.safetensors")
            shard, shards = {}, shards + 1
    if shard:
        save_file(shard, folder / f"model-{shards:05d}.safetensors")


def _published(module: Any) -> list[tuple[str, Tensor]]:
    """Parameters under their published names; a draft's mask embedding is left to the target's table."""
    found: list[tuple[str, Tensor]] = []
    for name, parameter in module.named_parameters():
        if name == "mask_embedding":
            continue
        names = checkpoint_names(name)
        if len(names) == 1:
            found.append((names[0], parameter.data))
            continue
        spec = module.layers[int(name.split(".")[1])].spec
        found += zip(names, parameter.data.split(part_rows(name, spec)), strict=True)
    return found


def _start(folder: Path) -> dict[str, float]:
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    files = sorted(folder.glob("*/*.safetensors"))
    for path in files:  # into the page cache
        with path.open("rb") as file:
            while file.read(1 << 26):
                pass
    clock = time.perf_counter()

    def lap() -> float:
        nonlocal clock
        torch.cuda.synchronize()
        before, clock = clock, time.perf_counter()
        return clock - before

    for path in files:
        with safe_open(path, framework="pt", device="cuda") as reader:
            for name in reader.keys():  # noqa: SIM118 - not a dict
                reader.get_tensor(name)
    copy = lap()
    torch.cuda.empty_cache()
    lap()
    target = load_target(folder / "target", device=device, dtype=torch.bfloat16)
    draft = load_draft(folder / "draft", target)
    load = lap()
    decoder = decoder_for(target, draft, _CONTEXT)
    session = Session(target, draft, _CONTEXT)
    decoder.prepare(session, verify_widths(8))
    prepare = lap()
    decoder.prefill(session, [i % 1000 for i in range(_PROMPT - 1)])
    decoder.round(session, 1, 8)
    first = lap()
    return {
        "gigabytes": sum(path.stat().st_size for path in files) / 1e9,
        "copy_s": copy,
        "load_s": load,
        "prepare_s": prepare,
        "first_block_s": first,
        "to_first_block_s": load + prepare + first,
    }


if __name__ == "__main__":
    print(json.dumps(_start(Path(sys.argv[1]))))
