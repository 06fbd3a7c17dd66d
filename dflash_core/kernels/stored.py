"""What stored weights are as bf16, two or four values at a time.

The library's own conversion of FP8 goes through an instruction of a quarter of the rate: it, and not memory, would set
the pace of a product. In bf16 the bits of a narrower number, moved to their places, are that number times a power of
two, subnormal ones included, so that one exact multiplication of two values is all that is left to do.
"""

from __future__ import annotations

import triton
import triton.language as tl


def _placed(of: str, shift: int, mask: str, factor: str, to: str, sign: str = "") -> str:
    """The bits of two narrow numbers moved to where bf16 has them, with their signs, times a factor.

    sign: a shift left, for signs that are not in place.
    """
    kept = "s" if sign else of
    return f"""
    shr.b32 t, {of}, {shift};
    {f"shl.b32 s, {of}, {sign};" if sign else ""}
    and.b32 t, t, {mask};
    lop3.b32 {kept}, {kept}, 0x80008000, t, 0xEA;
    mul.bf16x2 {to}, {kept}, {factor};"""


def _spread(source: str) -> str:
    """Four bytes, each in the upper half of 16 bits: the signs are in place."""
    return f"prmt.b32 a, {source}, 0, 0x1404; prmt.b32 b, {source}, 0, 0x3424;"


_FP8 = tl.constexpr(
    "{ .reg .b32 a, b, t, f; mov.b32 f, 0x7B807B80; "  # 2 ** 120 in bf16
    + _spread("$2")
    + _placed("a", 4, "0x07F007F0", "f", "$0")
    + _placed("b", 4, "0x07F007F0", "f", "$1")
    + "}"
)
_MXFP4 = tl.constexpr(
    "{ .reg .b32 a, b, s, t; "
    + _spread("$4")
    + _placed("a", 2, "0x01C001C0", "$5", "$0", sign="4")
    + _placed("a", 6, "0x01C001C0", "$5", "$2")
    + _placed("b", 2, "0x01C001C0", "$6", "$1", sign="4")
    + _placed("b", 6, "0x01C001C0", "$6", "$3")
    + "}"
)


@triton.jit
def unpack(weight, dtype: tl.constexpr, FAST: tl.constexpr):
    """FP8 (e4m3, no NaN among it) in another type, exactly. FAST: in bf16, on a device of capability 9.0 or later."""
    if FAST:
        return tl.inline_asm_elementwise(
            _FP8, "=r,=r,r", [weight.to(tl.uint8, bitcast=True)], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    return weight.to(dtype)


@triton.jit
def mxfp4_to_bf16(packed, power):
    """Bytes of two e2m1 values each: the low values, and the high ones.

    power: bf16 of the same shape, 2 ** 126 times what the values are to be multiplied with.
    """
    return tl.inline_asm_elementwise(
        _MXFP4, "=r,=r,=r,=r,r,r,r", [packed, power], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4
    )
