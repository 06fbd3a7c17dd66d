"""Step costs of a published geometry with random weights, beside the floor that memory bandwidth sets.

What a step costs depends on shapes, not on values, so no checkpoint is needed; what it yields (acceptance) does, so
rounds here say nothing of tokens a second on text. Bandwidth and matrix rate are measured in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import triton
from torch import nn

from dflash_core.benchmarks.bandwidth import read_bandwidth, step_ms
from dflash_core.benchmarks.stored_forms import random_stored, skew, store_in_form
from dflash_core.configs import default_target_layer_ids, draft_spec, target_spec
from dflash_core.cuda_decoder import CudaDecoder
from dflash_core.draft import Draft
from dflash_core.layers.decoder_layer import DecoderLayer
from dflash_core.layers.moe import Mixture
from dflash_core.layers.stored_weights import STORED_TYPES, loaded_types
from dflash_core.memory_ladder import release_memory
from dflash_core.placement import bytes_by_parameter, free_bytes, shared_out
from dflash_core.policy import verify_widths
from dflash_core.published import PUBLISHED, Form
from dflash_core.sessions import Session
from dflash_core.specs import DraftSpec, LayerSpec, MixtureSpec, RotarySpec, TargetSpec
from dflash_core.target import Target

_MATRIX = 8192


@dataclass(frozen=True)
class Geometry:
    """Shapes of a target, and of a draft of `draft_layers` layers over it.

    pair: specs of both, where the layers are not all alike. form: how the target's weights are stored.
    """

    layers: int
    layer: LayerSpec
    vocab_size: int
    tied_embeddings: bool
    rotary_base: float
    draft_layers: int = 5
    draft_intermediate: int | None = None
    pair: tuple[TargetSpec, DraftSpec] | None = None
    form: Form = "plain"


def _llama_like(hidden: int, ffn: int, heads: int, kv_heads: int, head_dim: int, **more: Any) -> LayerSpec:
    return LayerSpec(
        hidden_size=hidden, intermediate_size=ffn, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim,
        rms_norm_eps=1e-6, **more,
    )  # fmt: skip


def _some_layers(name: str, taken: range) -> Geometry:
    """Some layers of a published pair, of which its draft taps the last ones; the whole is tapped as published."""
    published = PUBLISHED[name]
    target, draft = target_spec(published.target), draft_spec(published.draft or {})
    some = replace(target, layers=target.layers[taken.start : taken.stop])
    tapped = draft.target_layer_ids
    if len(some.layers) < len(target.layers):
        tapped = tuple(range(len(some.layers) - len(tapped), len(some.layers)))
    over = replace(draft, target_layer_ids=tapped, num_target_layers=len(some.layers))
    return Geometry(
        len(taken), some.layers[0], some.vocab_size, False, some.rotary.base, pair=(some, over), form=published.form
    )


GEOMETRIES: dict[str, Geometry] = {
    "qwen3-8b": Geometry(36, _llama_like(4096, 12288, 32, 8, 128, qk_norm=True), 151936, False, 1e6),
    "qwen3-4b": Geometry(36, _llama_like(2560, 9728, 32, 8, 128, qk_norm=True), 151936, True, 1e6),
    "mimo-7b": Geometry(36, _llama_like(4096, 11008, 32, 8, 128, qkv_bias=True), 151680, False, 640000.0),
    "llama-3.1-8b": Geometry(32, _llama_like(4096, 14336, 32, 8, 128), 128256, False, 5e5),
    "qwen3-coder-30b": Geometry(
        48,
        _llama_like(
            2048,
            6144,
            32,
            4,
            128,
            qk_norm=True,
            mixture=MixtureSpec(num_experts=128, experts_per_row=8, intermediate_size=768, normalized=True),
        ),
        151936,
        False,
        1e7,
    ),
    "embedded": Geometry(30, _llama_like(576, 1536, 9, 3, 64), 49152, True, 1e5),
    # All of a MiMo is more than a device holds: five window layers and the global one behind them, every one a mixture.
    "mimo-v2.5-layers": _some_layers("mimo-v2.5", range(6, 12)),
    "mimo-v2.5": _some_layers("mimo-v2.5", range(48)),
    "mimo-v2.6-flash": _some_layers("mimo-v2.6-flash", range(48)),
    "mimo-v2.6-flash-layers": _some_layers("mimo-v2.6-flash", range(6, 12)),
}


def random_pair(
    geometry: Geometry,
    block_size: int,
    context: int,
    devices: torch.device | Sequence[torch.device],
    dtype: torch.dtype,
) -> tuple[Target, Draft]:
    """A target and a draft of these shapes with small random weights, its layers split over the devices."""
    positions = context + 64
    if geometry.pair:
        with torch.device("meta"):
            target = Target(replace(geometry.pair[0], max_positions=positions))
            draft = Draft(replace(geometry.pair[1], block_size=block_size))
        store_in_form(target, geometry.form)
        return _filled_pair(target, draft, devices, dtype, context)
    rotary = RotarySpec(dim=geometry.layer.head_dim, base=geometry.rotary_base)
    plain_target = TargetSpec(
        family="random",
        vocab_size=geometry.vocab_size,
        layers=(geometry.layer,) * geometry.layers,
        rotary=rotary,
        tied_embeddings=geometry.tied_embeddings,
        max_positions=positions,
    )
    ffn = geometry.draft_intermediate or geometry.layer.intermediate_size
    draft_layer = replace(
        geometry.layer, mixture=None, qk_norm=True, qkv_bias=False, causal=False, intermediate_size=ffn
    )
    plain_draft = DraftSpec(
        vocab_size=geometry.vocab_size,
        layers=(draft_layer,) * geometry.draft_layers,
        rotary=rotary,
        block_size=block_size,
        target_layer_ids=tuple(default_target_layer_ids(geometry.draft_layers, geometry.layers)),
        num_target_layers=geometry.layers,
        mask_token_id=0,
    )
    with torch.device("meta"):
        target, draft = Target(plain_target), Draft(plain_draft)
    return _filled_pair(target, draft, devices, dtype, context)


def _filled_pair(
    target: Target, draft: Draft, devices: torch.device | Sequence[torch.device], dtype: torch.dtype, context: int
) -> tuple[Target, Draft]:
    several = [devices] if isinstance(devices, torch.device) else devices
    beside = sum(bytes_by_parameter(draft, dtype).values())
    place = shared_out(several, exactly=True, positions=context, beside=beside, free=free_bytes)
    placement = place(target, dtype)
    target.stages = placement.stages
    return _filled(target, placement.device_of, dtype), _filled(draft, lambda name: placement.devices[0], dtype)


def _filled(module: Any, device_of: Callable[[str], torch.device], dtype: torch.dtype) -> Any:
    generators: dict[torch.device, torch.Generator] = {}
    types = loaded_types(module, dtype)
    for name, parameter in list(module.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        device = device_of(name)
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(len(generators))
        generator = generators[device]
        if parameter.dtype in STORED_TYPES or leaf.endswith("scales"):
            values = random_stored(leaf, parameter, device, generator)
        else:
            values = torch.empty(parameter.shape, device=device, dtype=types[name])
            # Tokens far apart: of a text whose rows were all alike, all would pick the same experts of a mixture.
            values.normal_(0.0, 1.0 if leaf == "embed_tokens" else 0.02, generator=generator)
            if parameter.dim() == 1 and "norm" in name:
                values += 1.0
        setattr(module.get_submodule(owner), leaf, nn.Parameter(values, requires_grad=False))
    for rotary in (m for m in module.modules() if hasattr(m, "inverse_frequencies")):
        rotary.to(device_of("norm.weight"))
    return module


class VariedDraft(CudaDecoder):
    """A round whose drafted tokens are all different, as those of a text are; a random draft repeats one.

    The draft costs what it costs; one small kernel more then moves each of its tokens by another step.
    """

    def __init__(self, target: Target, draft: Draft, context: int) -> None:
        super().__init__(target, draft, context)
        self._steps = 7919 * torch.arange(1, self.block_size, device=target.device)

    def _draft_rows(self) -> None:
        super()._draft_rows()
        drafted = self._block[1 : self.block_size]
        drafted.add_(self._steps).remainder_(self.target.spec.vocab_size)


def measure(
    geometry: Geometry, *, context: int = 1024, blocks: Sequence[int] = (8,), prompts: Sequence[int] = (1024, 4096),
    dtype: torch.dtype = torch.bfloat16, repeats: int = 50, skewed: bool = False, devices: Sequence[str] = ("cuda:0",),
) -> dict[str, Any]:  # fmt: skip
    """Costs at `context` positions for every block size, in milliseconds; keys as `bench engine --json` has them.

    Besides: a cold prompt of each length of `prompts` to its first block, a one-token edit at its end, and memory.
    skewed: mixtures with a bias on the choice favour a few experts, as trained routers do for the rows of one text.
    devices: those that the target's layers are split over, which run one after the other, so the floor is the bytes of
    all of them over the bandwidth of one. On the CPU the kernels run in Triton's interpreter, which tells no costs.
    """
    places = [torch.device(name) for name in devices]
    where = places[0]
    if where.type == "cuda":
        torch.cuda.set_device(where)
    read = read_bandwidth(where)
    matmul = matmul_rate(where, dtype)
    release_memory()  # or what these took would count as taken where layers are shared out
    longest = max(context, *prompts) + 256
    runs: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for block in blocks:
        started = time.perf_counter()
        target, draft = random_pair(geometry, block, longest, places, dtype)
        for place in places:
            _finish(place)
        weights_s = time.perf_counter() - started
        if skewed:
            skew(target)
        started = time.perf_counter()
        decoder = VariedDraft(target, draft, longest)
        session = Session(target, draft, longest)
        decoder.prepare(session, verify_widths(block))
        prepare_s = time.perf_counter() - started
        token, run = _costs(decoder, session, context, block, read, repeats)
        runs.append(run)
        if not more:
            more = {
                "autoregressive": token,
                "first_block": [_first_block(decoder, session, tokens, matmul, repeats) for tokens in prompts],
                "edits": [_edit(decoder, session, tokens, block, repeats) for tokens in prompts],
                "memory": _memory(decoder, session),
                "start": {"weights_s": weights_s, "prepare_s": prepare_s},
                "stages": [
                    {"device": name, "layers": [stage.start, stage.stop - 1]}
                    for name, stage in zip(devices, target.stages, strict=True)
                ],
            }
        del decoder, session, target, draft
        release_memory()
    best = max(run["tokens_per_s"] for run in runs)
    return {
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "none: Triton's interpreter",
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda},
        "weights": "random",
        "routing": "skewed" if skewed else "random",
        "dtype": str(dtype).removeprefix("torch."),
        "context": context,
        "read_tbps": read / 1e12,
        "matmul_tflops": matmul / 1e12,
        "runs": runs,
        "speedup": best / more["autoregressive"]["tokens_per_s"],
        **more,
    }


def _memory(decoder: CudaDecoder, session: Session) -> dict[str, Any]:
    """What the devices held at most, beside what weights and one session's keys and values take."""
    if decoder.target.device.type != "cuda":
        return {}
    assert decoder.draft is not None
    weights = sum(p.nbytes for module in (decoder.target, decoder.draft) for p in module.parameters())
    devices = {layer.device for layer in decoder.target.layers}
    peaks = {str(device): torch.cuda.max_memory_allocated(device) for device in devices}
    peak = sum(peaks.values())
    return {
        "peak_gb": peak / 1e9,
        "peak_gb_by_device": {name: size / 1e9 for name, size in peaks.items()},
        "peak_over_weights_and_kv": peak / (weights + session.nbytes),
    }


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of one large matrix product on random data."""
    size = _MATRIX if device.type == "cuda" else _MATRIX // 16
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / (step_ms(lambda: a @ b, device, 20) / 1000)


def _costs(
    decoder: CudaDecoder, session: Session, context: int, block: int, read: float, repeats: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token costs without the draft, and what a round costs with it."""
    session.rewind(0)
    decoder.prefill(session, _text(decoder, context))
    live = session.length
    graphs, device = decoder.graphs, decoder.target.device
    decoder.round(session, 1, block)
    draft_ms = step_ms(lambda: graphs.run("draft", decoder._draft_rows), device, repeats)
    verify_ms, experts, round_ms, accepted = {}, {}, {}, {}
    for width in verify_widths(block):
        round_ms[width], accepted[width] = _rounds(decoder, session, live, width, repeats)
        session.rewind(live)
        decoder.round(session, 1, block)  # the block that is verified below, and the graph of its width
        decoder.round(session, 1, width)
        again = partial(decoder.verify_again, width)
        verify_ms[width] = step_ms(again, device, min(repeats, 100 // width))
        experts[width] = decoder.experts_read(width)
    session.rewind(live)
    weights = {width: bytes_of_weights(decoder, read_experts) for width, read_experts in experts.items()}
    kv = live_bytes(session, live)
    floor_verify = {width: (each["target"] + each["head"] + kv) / read * 1000 for width, each in weights.items()}
    of_draft = session.draft_cache.nbytes / session.draft_cache.capacity * live if session.draft_cache else 0.0
    floor_draft = (weights[block]["draft"] + weights[block]["head"] + of_draft) / read * 1000
    floor_round = {width: floor + (floor_draft if width > 1 else 0.0) for width, floor in floor_verify.items()}
    token = {
        "token_ms": round_ms[1],
        "floor_token_ms": floor_round[1],
        "token_over_floor": round_ms[1] / floor_round[1],
        "tokens_per_s": 1000 / round_ms[1],
    }
    run = {
        "block": block,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms[block],
        "verify_ms_by_width": verify_ms,
        "experts_read_by_width": experts,
        "floor_verify_ms_by_width": floor_verify,
        "round_ms_by_width": round_ms,
        "floor_round_ms_by_width": floor_round,
        "round_over_floor_by_width": {width: ms / floor_round[width] for width, ms in round_ms.items()},
        "round_ms": round_ms[block],
        "floor_draft_ms": floor_draft,
        "floor_verify_ms": floor_verify[block],
        "floor_round_ms": floor_round[block],
        "round_over_floor": round_ms[block] / floor_round[block],
        "rounds": repeats,
        "acceptance_length": accepted[block],
        "tokens_per_s": accepted[block] * 1000 / round_ms[block],
    }
    return token, run


def _text(decoder: CudaDecoder, tokens: int) -> list[int]:
    """So many tokens, of which no two near each other are alike."""
    return [i * 7919 % decoder.target.spec.vocab_size for i in range(tokens)]


def _rounds(decoder: CudaDecoder, session: Session, live: int, width: int, repeats: int) -> tuple[float, float]:
    """Wall time of one round among many, the host's share included, and the tokens it committed in the mean."""
    session.rewind(live)
    anchor, times, committed = 1, [], 0
    for _ in range(repeats):
        started = time.perf_counter()
        done = decoder.round(session, anchor, width)
        times.append((time.perf_counter() - started) * 1000)
        anchor = done.tokens[-1]
        committed += len(done.tokens)
        if session.length > live + 100:
            session.rewind(live)
    return statistics.median(times), committed / repeats


def _first_block(decoder: CudaDecoder, session: Session, tokens: int, matmul: float, repeats: int) -> dict[str, Any]:
    prompt = _text(decoder, tokens)
    prefills, firsts = [], []
    for _ in range(min(5, repeats)):
        session.rewind(0)
        started = time.perf_counter()
        decoder.prefill(session, prompt[:-1])
        _finish(decoder.target.device)
        prefills.append((time.perf_counter() - started) * 1000)
        decoder.round(session, prompt[-1], decoder.block_size)
        firsts.append((time.perf_counter() - started) * 1000)
    prefill_ms = statistics.median(prefills)
    layers = sum(_multiplied(layer) for layer in decoder.target.layers)
    return {
        "prompt_tokens": tokens,
        "prefill_ms": prefill_ms,
        "first_block_ms": statistics.median(firsts),
        "share_of_matmul_rate": 2 * layers * tokens / (prefill_ms / 1000) / matmul,
    }


def _finish(device: torch.device) -> None:
    """Waits for what the device was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _multiplied(layer: DecoderLayer) -> float:
    """Parameters of a layer that every row is multiplied with, in whatever form they are stored."""
    spec, mixture = layer.spec, layer.spec.mixture
    attention = spec.hidden_size * (spec.qkv_size + spec.seen_size)
    if mixture is None:
        return attention + 3.0 * spec.hidden_size * spec.intermediate_size
    experts = mixture.experts_per_row * 3.0 * spec.hidden_size * mixture.intermediate_size
    return attention + experts + spec.hidden_size * mixture.num_experts


def _edit(decoder: CudaDecoder, session: Session, context: int, block: int, repeats: int) -> dict[str, Any]:
    """From a one-token edit at the end of a warm session to its first block, beside one round there."""
    times = []
    for _ in range(min(10, repeats)):
        session.rewind(0)
        decoder.prefill(session, _text(decoder, context - 1))
        decoder.round(session, 1, block)
        session.rewind(context - 2)
        _finish(decoder.target.device)  # a key stroke comes later than the draft that the last round launched ahead
        started = time.perf_counter()
        decoder.prefill(session, [7])
        decoder.round(session, 8, block)
        times.append((time.perf_counter() - started) * 1000)
    return {
        "context": context,
        "first_block_ms": statistics.median(times),
        "round_ms": _rounds(decoder, session, context - 1, block, min(20, repeats))[0],
    }


def bytes_of_weights(decoder: CudaDecoder, experts: float = 0.0) -> dict[str, float]:
    """Bytes that one verify reads of the target's layers, one draft of the draft's, and either of the head.

    experts: different experts of a mixture that the rows of a verify pick, mean over the layers.
    """
    assert decoder.draft is not None
    target = decoder.target
    read = 0.0
    for layer in target.layers:
        read += sum(p.nbytes for p in layer.parameters())
        if isinstance(layer.mlp, Mixture):
            stacked = sum(p.nbytes for p in layer.mlp.experts.parameters())
            read -= stacked * (1 - experts / layer.mlp.spec.num_experts)
    return {
        "target": read,
        "draft": sum(p.nbytes for p in decoder.draft.parameters()) + decoder.context_bytes,
        "head": head_bytes(decoder),
    }


def head_bytes(decoder: CudaDecoder) -> int:
    target = decoder.target
    return target.embed_tokens.nbytes if target.lm_head is None else target.lm_head.weight.nbytes


def live_bytes(session: Session, live: int) -> float:
    """Of the target's keys and values, those that a query may see: no more than its window of a layer that has one."""
    cache = session.target_cache
    total = 0.0
    for spec, keys, values in zip(cache.specs, cache.keys, cache.values, strict=True):
        total += (keys.nbytes + values.nbytes) / cache.capacity * min(live, spec.window or live)
    return total
