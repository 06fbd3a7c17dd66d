"""Loads and saves DFlash drafts in the published (z-lab) layout.

A folder holds config.json, safetensors with the names of the reference (1.1), and optionally `mask_embedding.pt`,
`{"mask_token_id": int, "embedding": [hidden]}`: a trained vector for the mask. Without it the mask is the target's
own table row of `mask_token_id`.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dflash_core.checkpoints.module import load_module
from dflash_core.checkpoints.names import checkpoint_names, part_rows
from dflash_core.checkpoints.reading import FLOAT_TYPES, SCALE, TensorFolder
from dflash_core.config_values import read_config
from dflash_core.configs import check_pair, draft_spec
from dflash_core.draft import Draft
from dflash_core.errors import CheckpointError, IncompatiblePairError
from dflash_core.target import Target

_MASK_FILE = "mask_embedding.pt"


def load_draft(folder: Path, target: Target, *, rotary_base: float | None = None) -> Draft:
    """Loads a draft for a target, to the target's device and dtype.

    Raises CheckpointError (damaged, unknown) or IncompatiblePairError (does not fit this target), one line each.
    """
    spec = draft_spec(read_config(folder), rotary_base=rotary_base)
    check_pair(target.spec, spec)
    with torch.device("meta"):
        draft = Draft(spec)
    tensors = TensorFolder(folder, prefix="model.")
    load_module(draft, tensors, device=target.device, dtype=target.dtype, skip=frozenset({"mask_embedding"}))
    mask = _read_mask_embedding(folder, spec.mask_token_id)
    if mask is None:
        mask = target.embed(torch.tensor([[spec.mask_token_id]], device=target.device))[0, 0]
    if mask.shape != (spec.hidden_size,):
        raise IncompatiblePairError(
            f"{folder / _MASK_FILE}: embedding has shape {list(mask.shape)}, hidden size is {spec.hidden_size}"
        )
    draft.mask_embedding = nn.Parameter(mask.to(target.device, target.dtype), requires_grad=False)
    draft.rotary.to(target.device)
    return draft.eval().requires_grad_(False)


def save_draft(draft: Draft, folder: Path, *, dtype: torch.dtype = torch.bfloat16, int8: bool = False) -> None:
    """Writes a draft in the layout that `load_draft`, SGLang and vLLM read.

    int8: matrices as int8 with a scale a row, half the size, for shipping; only `load_draft` reads these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, parameter in draft.named_parameters():
        if name == "mask_embedding":
            continue
        names = checkpoint_names(name)
        rows = [parameter.shape[0]] if len(names) == 1 else part_rows(name, draft.spec.layers[0])
        for part_name, part in zip(names, parameter.detach().split(rows), strict=True):
            if int8 and part.dim() > 1:
                wide = part.float().cpu()
                scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
                tensors[part_name], tensors[part_name + SCALE] = (wide / scale).round().to(torch.int8), scale
            else:
                tensors[part_name] = part.to("cpu", dtype).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(draft.spec.config, indent=2) + "\n", encoding="utf-8")
    mask = {
        "mask_token_id": draft.spec.mask_token_id,
        "embedding": draft.mask_embedding.detach().to("cpu", dtype),
    }
    torch.save(mask, folder / _MASK_FILE)


def _read_mask_embedding(folder: Path, mask_token_id: int) -> Tensor | None:
    path = folder / _MASK_FILE
    if not path.exists():
        return None
    try:
        # weights_only: a pickle from elsewhere must not run code.
        stored: Any = torch.load(path, map_location="cpu", weights_only=True)
        token, embedding = int(stored["mask_token_id"]), stored["embedding"]
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path} is not a mask embedding: it holds more than plain tensors") from error
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is not a mask embedding: {reason}") from error
    if token != mask_token_id:
        raise CheckpointError(f"{path} is for mask token {token}, config.json says {mask_token_id}")
    plain = isinstance(embedding, Tensor) and embedding.layout == torch.strided and embedding.device.type == "cpu"
    if not plain or embedding.dtype not in FLOAT_TYPES:
        raise CheckpointError(f"{path} is not a mask embedding: embedding must be a tensor of floats")
    if not torch.isfinite(embedding).all():
        raise CheckpointError(f"{path} holds values that are not finite")
    return embedding
