# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Shared parts of the kernels that hold a row of any width in registers.

A row of C values is held as two parts whose sizes are powers of two: 1152 is held as 1024 + 128, not padded to 2048.
"""

import triton
import triton.language as tl

__all__ = ["parts", "rounded_sum", "rounded_to_bfloat16", "store_fp8", "store_scaled_fp8", "warps"]

_FEW_ROWS = 1024


def parts(count: int) -> tuple[int, int]:
    """Return the sizes of a row's two parts, for rows of `count` values (at least 2); the second may need a mask."""
    first = 1 << ((count - 1).bit_length() - 1)
    return first, triton.next_power_of_2(count - first)


def warps(rows: int, count: int) -> int:
    """Return how many warps share a row: one is fastest when rows fill the device, several when there are few rows."""
    if rows < _FEW_ROWS:
        return 8 if count > 4096 else 4
    return 1 << (max(1, min(8, count // 1024)).bit_length() - 1)  # a number of warps must be a power of two


@triton.jit
def rounded_to_bfloat16(x):
    """Return float32 rounded to bfloat16, two at a time.

    Otherwise the compiler converts values one at a time, in the unit that already computes the exponentials.
    """
    return tl.inline_asm_elementwise(
        """
        {
            .reg .b32 both, low, high;
            cvt.rn.bf16x2.f32 both, $3, $2;
            shl.b32 low, both, 16;
            and.b32 high, both, 0xFFFF0000;
            mov.b32 $0, low;
            mov.b32 $1, high;
        }
        """,
        "=f,=f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def rounded_sum(x, y):
    """Return the sum of two values of one dtype, rounded to that dtype."""
    return (x.to(tl.float32) + y.to(tl.float32)).to(x.dtype)


@triton.jit
def store_fp8(head, tail, values, scales, row, C: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """Store a row's float32 parts as float8 `values` and their scale; values beyond C in `tail` must be zero."""
    largest = tl.maximum(tl.max(tl.abs(head), axis=0), tl.max(tl.abs(tail), axis=0))
    store_scaled_fp8(head, tail, tl.maximum(largest, 1e-12) / 448.0, values, scales, row, C, HEAD, TAIL)


@triton.jit
def store_scaled_fp8(head, tail, scale, values, scales, row, C: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """Store a row's float32 parts, divided by `scale`, as float8 `values`, and the scale."""
    cols = tl.arange(0, HEAD)
    tail_cols = HEAD + tl.arange(0, TAIL)
    inverse = 1.0 / scale
    start = values + row * C
    fp8 = values.dtype.element_ty
    tl.store(start + cols, (head * inverse).to(fp8))
    tl.store(start + tail_cols, (tail * inverse).to(fp8), mask=tail_cols < C)
    tl.store(scales + row, scale)
