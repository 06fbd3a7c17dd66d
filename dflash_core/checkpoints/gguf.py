"""Converts a Llama-family GGUF file once into a checkpoint directory: config.json and bf16 safetensors.

Reading and dequantizing is the `gguf` library's; ours are the names, the order of the q and k rows, and the
rounding. Needs numpy only: neither torch nor transformers is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_core.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WHOLE_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def convert_gguf(source: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write `config.json` and `model.safetensors` (bf16, tensor names of transformers' Llama) into `target`.

    source: a GGUF file of architecture "llama". target: an existing directory; what it holds under these two
    names is overwritten. progress: called with (tensors done, tensors in all).
    Raises CheckpointError with one line when the file is truncated, of another architecture, or incomplete.
    All tensors are held in memory as bf16, beside one of them in fp32.
    """
    from safetensors import SafetensorError, TensorSpec, serialize_file

    reader = _read(source)
    config = _config(source, reader)
    wanted = _shapes(config, any(tensor.name == "output.weight" for tensor in reader.tensors))
    converted: dict[str, NDArray[np.uint16]] = {}
    for done, tensor in enumerate(reader.tensors):
        name = _name(source, tensor.name)
        converted[name] = _bfloat16(source, tensor.name, _rows(source, tensor, config, wanted.get(name)))
        if progress:
            progress(done + 1, len(reader.tensors))
    missing = sorted(wanted.keys() - converted.keys())
    if missing:
        raise CheckpointError(f"{source.name} lacks the tensor {missing[0]}")
    specs = {
        name: TensorSpec(dtype="bfloat16", shape=values.shape, data_ptr=values.ctypes.data, data_len=values.nbytes)
        for name, values in converted.items()
    }
    try:
        serialize_file(specs, target / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:
        raise CheckpointError(f"{target / 'model.safetensors'} cannot be written: {error}") from error
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _read(source: Path) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(source)
    except OSError as error:
        raise CheckpointError(f"{source.name} cannot be read: {error.strerror or error}") from error
    # A file that ends too early shows as any of several errors of numpy's, depending on where it ends.
    except Exception as error:
        raise CheckpointError(f"{source.name} is truncated or not a GGUF file") from error


def _config(source: Path, reader: Any) -> dict[str, Any]:
    def value(key: str, needed: bool = True) -> Any:
        entry = reader.get_field(key)
        if entry is None and needed:
            raise CheckpointError(f"{source.name} lacks the key {key}")
        return None if entry is None else entry.contents()

    architecture = value("general.architecture")
    if architecture != "llama":
        raise CheckpointError(f"{source.name} is of architecture {architecture!r}, only 'llama' can be converted")
    scaling = value("llama.rope.scaling.type", needed=False)
    if scaling not in (None, "none"):
        raise CheckpointError(f"{source.name} scales its rotary positions ({scaling}), which is not converted")
    hidden, heads = value("llama.embedding_length"), value("llama.attention.head_count")
    embedding = next((t for t in reader.tensors if t.name == "token_embd.weight"), None)
    if embedding is None:
        raise CheckpointError(f"{source.name} lacks the tensor token_embd.weight")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": int(embedding.shape[1]),
        "hidden_size": hidden,
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv", needed=False) or heads,
        "head_dim": value("llama.rope.dimension_count", needed=False) or hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": value("llama.context_length"),
        "rope_theta": float(value("llama.rope.freq_base", needed=False) or 10000.0),
        # Stored as fp32: the shortest decimal that rounds to it is the number that was meant.
        "rms_norm_eps": _shortest(value("llama.attention.layer_norm_rms_epsilon")),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in reader.tensors),
        "bos_token_id": value("tokenizer.ggml.bos_token_id", needed=False),
        "eos_token_id": value("tokenizer.ggml.eos_token_id", needed=False),
    }


def _shapes(config: dict[str, Any], own_head: bool) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a model of this config has."""
    hidden, ffn, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    layer = {
        "attn_norm": (hidden,),
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if own_head:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for index in range(config["num_hidden_layers"]):
        for name, shape in layer.items():
            shapes[f"model.layers.{index}.{LAYER_NAMES[name]}.weight"] = shape
    return shapes


def _name(source: Path, name: str) -> str:
    if name in WHOLE_NAMES:
        return WHOLE_NAMES[name]
    match = LAYER_TENSOR.fullmatch(name)
    if not match or match[2] not in LAYER_NAMES:
        raise CheckpointError(f"{source.name} holds the tensor {name}, which a Llama model does not have")
    return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}.weight"


def _rows(source: Path, tensor: Any, config: dict[str, Any], wanted: tuple[int, ...] | None) -> NDArray[np.float32]:
    """The tensor in fp32, in transformers' shape and row order."""
    from gguf import dequantize

    shape = tuple(int(size) for size in reversed(tensor.shape))
    if shape != wanted:
        raise CheckpointError(f"{source.name}: {tensor.name} has shape {shape}, its config asks for {wanted}")
    values: NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    heads = {
        ".attn_q.weight": config["num_attention_heads"],
        ".attn_k.weight": config["num_key_value_heads"],
    }
    for ending, count in heads.items():
        if tensor.name.endswith(ending):
            # GGUF keeps the two rows that rotate together side by side, transformers half a head apart:
            # [heads, head_dim/2, 2, in] -> [heads, 2, head_dim/2, in]
            values = values.reshape(count, -1, 2, shape[1]).swapaxes(1, 2).reshape(shape)
    return values


def _bfloat16(source: Path, name: str, values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bit patterns of the values rounded to bf16, ties to even."""
    import numpy as np

    if not np.isfinite(values).all():
        raise CheckpointError(f"{source.name}: {name} holds a number that is not finite")
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    tie = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + tie) >> np.uint32(16)
    return rounded.astype(np.uint16)


def _shortest(value: float) -> float:
    import numpy as np

    return float(str(np.float32(value)))
