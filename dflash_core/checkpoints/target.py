"""Loads a target of any family that transformers knows from a Hugging Face folder (config.json and safetensors), and
writes changed weights back to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash_core.checkpoints.as_stored import store_as_published
from dflash_core.checkpoints.generic_target import known_to_transformers, load_generic_target
from dflash_core.checkpoints.module import load_module
from dflash_core.checkpoints.names import checkpoint_names, part_rows
from dflash_core.checkpoints.reading import Progress, TensorFolder
from dflash_core.config_values import read_config, whole
from dflash_core.configs import target_spec
from dflash_core.errors import UnsupportedModelError
from dflash_core.placement import Place, Placement, on_one
from dflash_core.specs import TargetSpec
from dflash_core.target import Target


def load_target(
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress = lambda share: None,
) -> Target:
    """Returns the target ready to run. Raises CheckpointError with one line that names file and tensor."""
    return TargetLoading(folder, device=torch.device(device), dtype=dtype).run(progress)


class TargetLoading:
    """A target on its way from disk. `run` may fail at a tensor; run again, it goes on with that tensor."""

    def __init__(self, folder: Path, *, device: torch.device, dtype: torch.dtype, place: Place | None = None) -> None:
        """place: where its layers go, if not all to `device`."""
        self.folder = folder
        self._device, self._dtype = device, dtype
        self._place = place or on_one(device)
        self._begun: tuple[dict[str, Any], Target] | None = None
        self._placement: Placement | None = None

    def run(self, progress: Progress = lambda share: None) -> Target:
        """Raises CheckpointError with one line that names file and tensor; what was read by then is kept."""
        config = read_config(self.folder)
        try:
            spec = target_spec(config)
        except UnsupportedModelError:
            if not known_to_transformers(config):
                raise
            return load_generic_target(self.folder, device=self._device, dtype=self._dtype)
        tensors = TensorFolder(self.folder, prefix="model.")
        if self._begun is None or self._begun[0] != config:  # of another model nothing can be kept
            with torch.device("meta"):
                self._begun = (config, Target(spec))
            self._placement = None
        target = self._begun[1]
        pieces = store_as_published(target, tensors, config, _fused_shards(config, tensors))
        # Once: of a load that goes on, some of the memory is taken by itself.
        self._placement = placement = self._placement or self._place(target, self._dtype)
        target.stages = placement.stages
        load_module(
            target,
            tensors,
            device=placement.device_of,
            dtype=self._dtype,
            pieces=pieces,
            ignored=lambda name: _is_left_unread(name, spec),
            progress=progress,
        )
        target.rotary.to(placement.devices[0])
        if target.window_rotary:
            target.window_rotary.to(placement.devices[0])
        return target.eval().requires_grad_(False)


def _fused_shards(config: dict[str, Any], tensors: TensorFolder) -> int:
    """Shards of a fused qkv tensor: as many as the checkpoint was exported for, which its index may say."""
    return whole("tp_size", tensors.metadata.get("tp_size", config.get("num_key_value_heads") or 1), high=1 << 16)


def _is_left_unread(name: str, spec: TargetSpec) -> bool:
    """Published tensors that the text model does not compute with."""
    # A tied head may be stored all the same; old checkpoints also store their rotary frequencies.
    if (spec.tied_embeddings and name == "lm_head.weight") or name.endswith("inv_freq"):
        return True
    # MiMo's checkpoints hold layers for multi-token prediction, and V2.5's and V2.6's what sees and hears.
    return spec.family.startswith("mimo") and not name.startswith(("layers.", "embed_tokens.", "norm.", "lm_head."))


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
