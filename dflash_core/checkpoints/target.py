"""Loads a target of any family that transformers knows from a Hugging Face folder (config.json and safetensors), and
writes changed weights back to one."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash_core.checkpoints.generic_target import known_to_transformers, load_generic_target
from dflash_core.checkpoints.names import checkpoint_names, part_rows
from dflash_core.checkpoints.reading import Progress, TensorFolder, load_module, read_config
from dflash_core.configs import target_spec
from dflash_core.errors import UnsupportedModelError
from dflash_core.target import Target


def load_target(
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress = lambda share: None,
) -> Target:
    """Returns the target ready to run. Raises CheckpointError with one line that names file and tensor."""
    device = torch.device(device)
    config = read_config(folder)
    try:
        spec = target_spec(config)
    except UnsupportedModelError:
        if not known_to_transformers(config):
            raise
        return load_generic_target(folder, device=device, dtype=dtype)
    with torch.device("meta"):
        target = Target(spec)
    load_module(
        target,
        TensorFolder(folder, prefix="model."),
        device=device,
        dtype=dtype,
        # A tied head may be stored all the same; old checkpoints also store their rotary frequencies.
        ignored=lambda name: (spec.tied_embeddings and name == "lm_head.weight") or name.endswith("inv_freq"),
        progress=progress,
    )
    target.rotary.to(device)
    if target.window_rotary:
        target.window_rotary.to(device)
    return target.eval().requires_grad_(False)


def save_weights(target: Target, folder: Path) -> None:
    """Replaces `model.safetensors` of a target's folder by its present weights, bf16, under the published names."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in target.named_parameters():
        names = checkpoint_names(name)
        whole = parameter.detach().to("cpu", torch.bfloat16)
        if len(names) == 1:
            parts = [whole]
        else:
            layer = target.spec.layers[int(name.split(".")[1])]
            parts = list(whole.split(part_rows(name, layer)))
        for published, part in zip(names, parts, strict=True):
            outside = published.startswith("lm_head")
            tensors[published if outside else f"model.{published}"] = part.contiguous()
    partial = folder / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")
