"""Loading holds one published tensor at a time beside what is loaded: a model need not fit into the host twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.core import tiny_mimo

WATCHED = """
import json, sys, threading, time
from pathlib import Path
import torch
from dflash_core.checkpoints.target import load_target

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

before, most, done = held(), 0, False
def watch():
    global most
    while not done:
        most = max(most, held())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
shares = []
target = load_target(Path(sys.argv[1]), dtype=torch.bfloat16, progress=shares.append)
done = True
thread.join()
weights = sum(p.nbytes for p in target.parameters())
print(json.dumps({"beside": most - before - weights, "weights": weights, "shares": shares}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_little_is_held_beside_the_weights_while_they_are_loaded(tmp_path: Path) -> None:
    experts, hidden, ffn = 64, 256, 512
    config = tiny_mimo.config(
        hidden_size=hidden, n_routed_experts=experts, moe_intermediate_size=ffn, num_hidden_layers=4,
        hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 1, 1],
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        from dflash_core.checkpoints.names import checkpoint_names, expert_names, part_rows
        from dflash_core.configs import target_spec
        from dflash_core.target import Target

        target = Target(target_spec(config))
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in target.named_parameters():
        names = expert_names(name, parameter.shape[0]) or checkpoint_names(name)
        layer = target.spec.layers[int(name.split(".")[1])] if name.startswith("layers.") else None
        rows = part_rows(name, layer) if layer and len(names) in (2, 3) else []
        for i, part in enumerate(names):
            size = rows[i] if rows else parameter.numel() // len(names) // parameter.shape[-1]
            shape = (size, parameter.shape[-1]) if parameter.dim() > 1 else tuple(parameter.shape)
            outside = part.startswith("lm_head")
            tensors[part if outside else f"model.{part}"] = torch.full(shape, 0.01, dtype=torch.bfloat16)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    done = subprocess.run([sys.executable, "-c", WATCHED, str(tmp_path)], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    largest_stack = 2 * experts * 2 * ffn * hidden
    assert found["weights"] > 140_000_000
    assert found["beside"] < largest_stack  # a stack of experts was never held twice
    assert found["shares"] == sorted(found["shares"]) and found["shares"][-1] == 1.0
