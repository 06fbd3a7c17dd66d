"""Loads a target of a family that is not ours through transformers; safetensors only, never code of the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from dflash_core.errors import CheckpointError
from dflash_core.generic_target import GenericTarget
from dflash_core.memory_ladder import is_out_of_memory


def known_to_transformers(config: dict[str, Any]) -> bool:
    """Whether transformers has a causal language model for this config.json."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return config.get("model_type") in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def load_generic_target(folder: Path, *, device: torch.device, dtype: torch.dtype) -> GenericTarget:
    """Returns the target ready to run. Raises CheckpointError with one line."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if _keeps_a_state(config):
            raise CheckpointError(
                f"target: model_type {config.model_type!r} is not supported: its state cannot be rolled back"
            )
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except CheckpointError:
        raise
    except Exception as error:  # transformers has no error of its own for a checkpoint that is not right
        if is_out_of_memory(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"{folder} cannot be loaded by transformers: {lines[0]}") from error
    model, found = loaded
    for key, words in (("missing_keys", "is missing"), ("unexpected_keys", "is not part of this model")):
        if names := sorted(found[key]):
            raise CheckpointError(f"{folder}: tensor {names[0]} {words} ({len(names)} such)")
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise CheckpointError(f"{folder}: tensor {name} holds values that are not finite")
    target = GenericTarget(model.to(device).eval().requires_grad_(False)).eval()
    target.check()
    return target


def _keeps_a_state(config: Any) -> bool:
    """Whether layers of this model sum the text up in a state (Mamba and the like) and not in keys and values."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    return bool(getattr(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], "_is_stateful", False))
