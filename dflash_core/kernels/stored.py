"""What stored weights are as bf16, two or four values at a time.

The library's own conversion of FP8 goes through an instruction of a quarter of the rate: it, and not memory, would set
the pace of a product. In bf16 the bits of a narrower number, moved to their places, are that number times a power of
two, subnormal ones included, so that one exact multiplication of two values is all that is left to do.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Bytes are spread to the upper halves of 16 bits: sign in place. 0x7B80 is 2 ** 120 in bf16.
_FP8 = tl.constexpr(
    """
    {
    .reg .b32 a, b, t, f;
    mov.b32 f, 0x7B807B80;
    prmt.b32 a, $2, 0, 0x1404;
    prmt.b32 b, $2, 0, 0x3424;
    shr.b32 t, a, 4;
    and.b32 t, t, 0x07F007F0;
    lop3.b32 a, a, 0x80008000, t, 0xEA;
    mul.bf16x2 $0, a, f;
    shr.b32 t, b, 4;
    and.b32 t, t, 0x07F007F0;
    lop3.b32 b, b, 0x80008000, t, 0xEA;
    mul.bf16x2 $1, b, f;
    }
    """
)
_MXFP4 = tl.constexpr(
    """
    {
    .reg .b32 a, b, s, t;
    prmt.b32 a, $4, 0, 0x1404;
    prmt.b32 b, $4, 0, 0x3424;
    shr.b32 t, a, 2;
    shl.b32 s, a, 4;
    and.b32 t, t, 0x01C001C0;
    lop3.b32 s, s, 0x80008000, t, 0xEA;
    mul.bf16x2 $0, s, $5;
    shr.b32 t, a, 6;
    and.b32 t, t, 0x01C001C0;
    lop3.b32 a, a, 0x80008000, t, 0xEA;
    mul.bf16x2 $2, a, $5;
    shr.b32 t, b, 2;
    shl.b32 s, b, 4;
    and.b32 t, t, 0x01C001C0;
    lop3.b32 s, s, 0x80008000, t, 0xEA;
    mul.bf16x2 $1, s, $6;
    shr.b32 t, b, 6;
    and.b32 t, t, 0x01C001C0;
    lop3.b32 b, b, 0x80008000, t, 0xEA;
    mul.bf16x2 $3, b, $6;
    }
    """
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
