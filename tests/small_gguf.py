"""Writes a small Llama GGUF and a wheel around it, so that a fetch takes the real path in a moment."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from server.profiles.fetch import WheelPin

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2, 64, 96, 4, 2, 320
HEAD = HIDDEN // HEADS
MEMBER = "small_model/small.gguf"
Weights = dict[str, NDArray[np.float32]]


def random_weights(seed: int = 0) -> Weights:
    """fp32 weights by transformers' names. Each is what quantizing leaves of it, so that nothing is lost twice."""
    draw = np.random.default_rng(seed)
    keys = HEAD * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.input_layernorm": (HIDDEN,), f"{at}.post_attention_layernorm": (HIDDEN,)}
        shapes |= {f"{at}.self_attn.q_proj": (HIDDEN, HIDDEN), f"{at}.self_attn.o_proj": (HIDDEN, HIDDEN)}
        shapes |= {f"{at}.self_attn.k_proj": (keys, HIDDEN), f"{at}.self_attn.v_proj": (keys, HIDDEN)}
        shapes |= {f"{at}.mlp.gate_proj": (FFN, HIDDEN), f"{at}.mlp.up_proj": (FFN, HIDDEN)}
        shapes |= {f"{at}.mlp.down_proj": (HIDDEN, FFN)}
    weights: Weights = {}
    for name, shape in shapes.items():
        values = draw.standard_normal(shape).astype(np.float32)
        kind = kind_of(name, shape)
        weights[f"{name}.weight"] = gguf.dequantize(gguf.quantize(values, kind), kind).reshape(shape)
    return weights


def kind_of(name: str, shape: tuple[int, ...]) -> Kind:
    """The quantization of the real file: norms fp32, the embedding Q8_0, all else Q4_1."""
    if len(shape) == 1:
        return Kind.F32
    return Kind.Q8_0 if "embed" in name else Kind.Q4_1


def rotary_pairs(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """GGUF's row order: row j and row j + head/2 of each head side by side."""
    order = [
        head * HEAD + half * (HEAD // 2) + place
        for head in range(heads)
        for place in range(HEAD // 2)
        for half in (0, 1)
    ]
    return rows[order]


def write_gguf(path: Path, weights: Weights, architecture: str = "llama") -> None:
    """The weights as a GGUF file, named and ordered as llama.cpp's converter does."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, values in weights.items():
        kind = kind_of(name, values.shape)
        if ".q_proj" in name:
            values = rotary_pairs(values, HEADS)
        if ".k_proj" in name:
            values = rotary_pairs(values, KV_HEADS)
        packed = gguf.quantize(values, kind)
        theirs = names.get_name(name, try_suffixes=(".weight",))
        assert theirs is not None
        writer.add_tensor(theirs, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, content: bytes) -> WheelPin:
    """A wheel that pip accepts, holding `content` as its GGUF; returns the pin that fits it."""
    pin_name = "small_model-1.0-py3-none-any.whl"
    info = "small_model-1.0.dist-info"
    with zipfile.ZipFile(folder / pin_name, "w") as wheel:
        wheel.writestr(MEMBER, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    packed = (folder / pin_name).read_bytes()
    return WheelPin(
        requirement="small-model==1.0",
        wheel_name=pin_name,
        wheel_size=len(packed),
        wheel_sha256=hashlib.sha256(packed).hexdigest(),
        member=MEMBER,
        member_size=len(content),
        member_sha256=hashlib.sha256(content).hexdigest(),
        checkpoint_size=300_000,
    )
