"""Decoder layers over static buffers, by kernels: a block's few rows, or a chunk of a prompt.

The layers' own modules hold the weights; this is how they are run where every launch counts. The plain way to run the
same layers is `layers/decoder_layer.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash_core.draft import Draft
from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.block_attention import Scratch, block_attention
from dflash_core.kernels.heads import place_heads
from dflash_core.kernels.many_rows import chunk_attention, gate, rms_norm
from dflash_core.kernels.mixture import Routing, mix, route
from dflash_core.kernels.skinny_linear import BlockScales, HalfNormed, column_tiles, router_tiling, skinny_linear
from dflash_core.kernels.unpack import unpack_fp8
from dflash_core.kernels.verification import embed
from dflash_core.layers.attention import Attention
from dflash_core.layers.decoder_layer import DecoderLayer
from dflash_core.layers.linear import Linear
from dflash_core.layers.moe import Mixture
from dflash_core.layers.rms_norm import RMSNorm
from dflash_core.layers.rotary_embedding import RotaryEmbedding
from dflash_core.layers.stored_weights import Fp8Linear
from dflash_core.specs import LayerSpec
from dflash_core.target import Target

CHUNKS = (64, 256, 1024)
"""Prompt rows of one prefill graph; what is left of a prompt is padded to the next of them."""


class Stack:
    """Runs decoder layers over buffers of its own; the residual stream is `rows(n)`."""

    def __init__(
        self,
        layers: Sequence[DecoderLayer],
        last_norm: Tensor,
        rotary: RotaryEmbedding,
        window_rotary: RotaryEmbedding | None,
        addresses: Tensor,
        capacity: int,
        block_size: int,
        dtype: torch.dtype,
    ) -> None:
        """layers: some that follow each other, on one device. last_norm: weight of the norm behind them, there too.
        addresses: [2 * layers] int64, where keys and values of each lie."""
        specs = tuple(layer.spec for layer in layers)
        device = layers[0].device
        hidden = specs[0].hidden_size

        def room(channels: int) -> Tensor:
            return torch.zeros(CHUNKS[-1], channels, dtype=dtype, device=device)

        self.addresses = addresses
        self._rotary = rotary_tables(rotary, capacity + CHUNKS[-1], device)
        self._window_rotary = (
            rotary_tables(window_rotary, capacity + CHUNKS[-1], device) if window_rotary else self._rotary
        )
        self.hidden_size = hidden
        self._x, self._scaled = room(hidden), room(hidden)
        self._qkv = room(max(spec.qkv_size for spec in specs))
        self._queries = room(max(spec.q_size for spec in specs))
        self._seen = room(max(spec.seen_size for spec in specs))
        self._gate_up = room(2 * max(spec.intermediate_size for spec in specs))
        self._gated = room(max(spec.intermediate_size for spec in specs))
        mixtures = [spec.mixture for spec in specs if spec.mixture]
        pairs = max((spec.experts_per_row for spec in mixtures), default=0)
        experts = max((spec.num_experts for spec in mixtures), default=0)
        # A sigmoid router scores in fp32.
        scored = torch.float32 if any(spec.router == "sigmoid" for spec in mixtures) else dtype
        self._logits = torch.zeros(CHUNKS[-1], experts, dtype=scored, device=device)
        # Where a weight in FP8 is unpacked for the library's products.
        modules = [module for layer in layers for module in layer.modules()]
        stored = [m.weight.numel() for m in modules if isinstance(m, Fp8Linear)]
        self._unpacked = torch.zeros(max(stored, default=0), dtype=dtype, device=device)
        self._expert_gated = room(max((spec.experts_per_row * spec.intermediate_size for spec in mixtures), default=0))
        self._parts = room(pairs * hidden)
        self.routing = Routing.empty(CHUNKS[-1], mixtures[0], device) if mixtures else None
        self._squares = torch.zeros(column_tiles(hidden), MOST_ROWS, dtype=torch.float32, device=device)
        self._eps = specs[0].rms_norm_eps
        self._capacity = capacity
        self._block_size = block_size
        self._scratch = Scratch.for_layers(specs, MOST_ROWS, capacity, device)
        # The norm that follows each layer: the next one's first, in the end the model's own.
        self._first_norm = layers[0].input_layernorm.weight
        self._following = [*[layer.input_layernorm.weight for layer in layers[1:]], last_norm]
        self._first = layers[0].index

    def rotary(self, spec: LayerSpec) -> tuple[Tensor, Tensor]:
        """Tables of cos and sin for a layer's queries and keys."""
        return self._window_rotary if spec.window else self._rotary

    def rows(self, count: int) -> Tensor:
        return self._x[:count]

    def normed(self, count: int) -> HalfNormed:
        """The first rows after the norm that follows what was run last."""
        return HalfNormed(self._scaled[:count], self._squares, self._eps)

    @property
    def residual(self) -> tuple[Tensor, ...]:
        """What a pass begins with and changes."""
        return self._x, self._scaled, self._squares

    def receive(self, before: Stack, rows: int) -> None:
        """Takes the residual stream over from a stack that may lie on another device; streams put it in order."""
        self._x[:rows].copy_(before._x[:rows], non_blocking=True)
        if rows <= MOST_ROWS:  # a chunk is normed anew
            self._scaled[:rows].copy_(before._scaled[:rows], non_blocking=True)
            self._squares.copy_(before._squares, non_blocking=True)

    def embed(self, tokens: Tensor, table: Tensor, mask_embedding: Tensor | None = None) -> None:
        rows = tokens.shape[0]
        after = self.normed(rows)
        if rows > MOST_ROWS:  # nobody reads the squares of a chunk: larger pieces
            after = after._replace(squares=after.squares[:4])
        embed(tokens, table, self.rows(rows), self._first_norm, after, mask_embedding)

    def few(self, layer: DecoderLayer, rows: int, state: Tensor, count: Tensor, tap: Tensor | None = None) -> None:
        """At most MOST_ROWS rows through one layer, in place."""
        spec, attention, x, normed = layer.spec, layer.self_attn, self.rows(rows), self.normed(rows)
        number = layer.index - self._first
        qkv, queries, seen = self._heads(spec, rows)
        skinny_linear(
            normed, attention.qkv_proj.weight, qkv, bias=attention.qkv_proj.bias, scales=_scales(attention.qkv_proj)
        )
        place_heads(qkv, queries, spec, _norms(attention), self.rotary(spec), self.addresses, number, state, count)
        block_attention(
            queries,
            seen,
            spec,
            attention.sinks,
            self.addresses,
            number,
            state,
            count,
            self._scratch,
            self._capacity,
            self._block_size,
        )
        after_attention = (layer.post_attention_layernorm.weight, normed)
        output = attention.o_proj
        skinny_linear(seen, output.weight, x, residual=x, followed_by=after_attention, scales=_scales(output))
        after_mlp = (self._following[number], normed)
        if isinstance(layer.mlp, Mixture):
            self._mix(layer.mlp, x, normed, count, tap, after_mlp)
            return
        gated = _part(self._gated, rows, spec.intermediate_size)
        gate_up, down = layer.mlp.gate_up_proj, layer.mlp.down_proj
        skinny_linear(normed, gate_up.weight, gated, gated=True, scales=_scales(gate_up))
        skinny_linear(gated, down.weight, x, residual=x, tap=tap, followed_by=after_mlp, scales=_scales(down))

    def many(self, layer: DecoderLayer, rows: int, state: Tensor, count: Tensor) -> None:
        """A chunk of a prompt through one layer, in place: products by the library, the rest by kernels."""
        spec, attention, x, normed = layer.spec, layer.self_attn, self.rows(rows), self._scaled[:rows]
        number = layer.index - self._first
        qkv, queries, seen = self._heads(spec, rows)
        gate_up, gated = (
            _part(self._gate_up, rows, 2 * spec.intermediate_size),
            _part(self._gated, rows, spec.intermediate_size),
        )
        rms_norm(x, layer.input_layernorm.weight, normed, spec.rms_norm_eps)
        torch.mm(normed, self._plain(attention.qkv_proj).T, out=qkv)
        if attention.qkv_proj.bias is not None:
            qkv += attention.qkv_proj.bias
        norms = _norms(attention)
        place_heads(qkv, queries, spec, norms, self.rotary(spec), self.addresses, number, state, count)
        chunk_attention(queries, seen, spec, attention.sinks, self.addresses, number, state, count)
        x.addmm_(seen, self._plain(attention.o_proj).T)
        rms_norm(x, layer.post_attention_layernorm.weight, normed, spec.rms_norm_eps)
        if isinstance(layer.mlp, Mixture):
            self._mix(layer.mlp, x, normed, count)
            return
        gate_up = _part(self._gate_up, rows, 2 * spec.intermediate_size)
        gated = _part(self._gated, rows, spec.intermediate_size)
        torch.mm(normed, self._plain(layer.mlp.gate_up_proj).T, out=gate_up)
        gate(gate_up, gated)
        x.addmm_(gated, self._plain(layer.mlp.down_proj).T)

    def _plain(self, linear: Linear | Fp8Linear) -> Tensor:
        """A weight as the library multiplies with it, until the next one is asked for."""
        scales = _scales(linear)
        if scales is None:
            return linear.weight
        unpacked = self._unpacked[: linear.weight.numel()].view(linear.weight.shape)
        unpack_fp8(linear.weight, scales, unpacked)
        return unpacked

    def _mix(
        self,
        mixture: Mixture,
        x: Tensor,
        normed: HalfNormed | Tensor,
        count: Tensor,
        tap: Tensor | None = None,
        followed_by: tuple[Tensor, HalfNormed] | None = None,
    ) -> None:
        spec, rows = mixture.spec, x.shape[0]
        pairs = rows * spec.experts_per_row
        logits = _part(self._logits, rows, spec.num_experts)
        if isinstance(normed, HalfNormed):
            skinny_linear(normed, mixture.gate.weight, logits, tiles=router_tiling(x.shape[1]))
        else:
            torch.mm(normed.to(logits.dtype), mixture.gate.weight.T, out=logits)
        assert self.routing is not None
        routing = self.routing.first(pairs)
        route(logits, count, spec, routing, mixture.choice_bias)
        mix(
            x, normed, mixture.experts, routing, spec,
            _part(self._expert_gated, pairs, spec.intermediate_size), _part(self._parts, pairs, x.shape[1]),
            tap, followed_by,
        )  # fmt: skip

    def _heads(self, spec: LayerSpec, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Room for the projected heads, the rotated queries and what they saw."""
        queries = _part(self._queries, rows, spec.q_size).view(rows, spec.num_heads, spec.head_dim)
        return _part(self._qkv, rows, spec.qkv_size), queries, _part(self._seen, rows, spec.seen_size)


class ContextWriter:
    """Injects target features into all layers of a draft: one product for the context, one for all keys and values."""

    def __init__(self, draft: Draft, stack: Stack, target: Target) -> None:
        self._draft = draft
        self._stack = stack
        # Joined once: the layers' own copies stay where the draft's block needs them.
        self._weight = torch.cat([layer.self_attn.qkv_proj.weight[layer.spec.q_size :] for layer in draft.layers])
        hidden, rows = draft.spec.hidden_size, CHUNKS[-1]
        self._context = torch.zeros(rows, hidden, dtype=target.dtype, device=target.device)
        self._normed = torch.zeros_like(self._context)
        tiles = column_tiles(hidden)
        self._squares = torch.zeros(tiles, MOST_ROWS, dtype=torch.float32, device=target.device)
        self._projected = torch.zeros(rows, self._weight.shape[0], dtype=target.dtype, device=target.device)

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes

    def few(self, features: Tensor, state: Tensor, count: Tensor) -> None:
        """features: [rows, len(target_layer_ids) * hidden] of at most MOST_ROWS rows."""
        rows, norm = features.shape[0], self._draft.hidden_norm
        normed = HalfNormed(self._normed[:rows], self._squares, norm.eps)
        skinny_linear(features, self._draft.fc.weight, self._context[:rows], followed_by=(norm.weight, normed))
        skinny_linear(normed, self._weight, self._projected[:rows])
        self._place(rows, state, count)

    def many(self, features: Tensor, state: Tensor, count: Tensor) -> None:
        rows, norm = features.shape[0], self._draft.hidden_norm
        torch.mm(features, self._draft.fc.weight.T, out=self._context[:rows])
        rms_norm(self._context[:rows], norm.weight, self._normed[:rows], norm.eps)
        torch.mm(self._normed[:rows], self._weight.T, out=self._projected[:rows])
        self._place(rows, state, count)

    def _place(self, rows: int, state: Tensor, count: Tensor) -> None:
        at = 0
        for layer in self._draft.layers:
            size = layer.spec.k_size + layer.spec.v_size
            projected = self._projected[:rows, at : at + size]
            at += size
            place_heads(
                projected, None, layer.spec, _norms(layer.self_attn), self._stack.rotary(layer.spec),
                self._stack.addresses, layer.index, state, count,
            )  # fmt: skip


def rotary_tables(rotary: RotaryEmbedding, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of every position, fp32 [positions, dim / 2] each: both halves of a head turn by the same angles."""
    # Where the frequencies are, so that all devices have the same tables.
    cos, sin = rotary(torch.arange(positions, device=rotary.inverse_frequencies.device)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous().to(device), sin[0, :, :half].contiguous().to(device)


def _norms(attention: Attention) -> tuple[Tensor, Tensor] | None:
    q, k = attention.q_norm, attention.k_norm
    return (q.weight, k.weight) if isinstance(q, RMSNorm) and isinstance(k, RMSNorm) else None


def _scales(linear: Linear | Fp8Linear) -> BlockScales | None:
    return BlockScales(linear.scales, *linear.block) if isinstance(linear, Fp8Linear) else None


def _part(buffer: Tensor, rows: int, channels: int) -> Tensor:
    """The first rows * channels elements as [rows, channels]: contiguous whatever the buffer's own width."""
    return buffer.view(-1)[: rows * channels].view(rows, channels)
