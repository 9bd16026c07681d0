"""Rotation and the write to the pool, at the sizes of Moondream 2: rows of 3 x 2048 and 8192 columns, bfloat16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernel_rows.row import Row, check, microseconds, microseconds_captured
from worker.kernels.rope import rope
from worker.kernels.rotate_write import reference, rotate_and_write, rotate_write_gelu, rotation_table

__all__ = ["rows"]

HEADS, HEAD_DIM, ROTARY, PAGE = 32, 64, 32, 16
WIDTH, MLP = HEADS * HEAD_DIM, 8192
COUNTS = [1, 64, 750, 6000]


def torch_calls(qkv_TC: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor) -> Tensor:
    """Do the same with what torch has."""
    qkv_THD = qkv_TC.view(len(qkv_TC), 3 * HEADS, HEAD_DIM)
    cos_TF, sin_TF = table_SF2[positions_T].unbind(-1)
    q_THD, k_THD = rope(qkv_THD[:, : 2 * HEADS], (cos_TF, sin_TF)).chunk(2, dim=1)
    keys, values = pool.view(2, -1, HEADS, HEAD_DIM)
    keys.index_copy_(0, slots_T, k_THD)
    values.index_copy_(0, slots_T, qkv_THD[:, 2 * HEADS :])
    return q_THD


def torch_calls_gelu(rows_TN: Tensor, *places: Tensor, out_TM: Tensor) -> Tensor:
    out_TM[:, WIDTH:] = functional.gelu(rows_TN[:, 3 * WIDTH :], approximate="tanh")
    return torch_calls(rows_TN[:, : 3 * WIDTH], *places)


def measure(count: int, *, gelu: bool) -> Row:
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    pages = count // PAGE + 8
    pool, other = (torch.zeros(2, pages, PAGE, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    positions = torch.arange(count, device="cuda") % 2048
    slots = torch.randperm(pages * PAGE, device="cuda")[:count]
    table = rotation_table(2048, ROTARY, 10000.0, torch.device("cuda"))
    x = made(count, 3 * WIDTH + (MLP if gelu else 0))
    outs = [made(count, WIDTH + MLP) for _ in range(2)] if gelu else []
    if gelu:
        ours = partial(rotate_write_gelu, x, positions, table, pool, slots, out_TM=outs[0])
        right = partial(reference.rotate_write_gelu, x, positions, table, other, slots, out_TM=outs[1])
        theirs = partial(torch_calls_gelu, x, positions, table, other, slots, out_TM=outs[1])
    else:
        ours = partial(rotate_and_write, x, positions, table, pool, slots, heads=HEADS)
        right = partial(reference.rotate_and_write, x, positions, table, other, slots, heads=HEADS)
        theirs = partial(torch_calls, x, positions, table, other, slots)
    check(ours(), right(), 1e-3)
    check(pool, other, 1e-3)
    if gelu:
        check(outs[0][:, WIDTH:], outs[1][:, WIDTH:], 1e-3)
    small = count <= 64
    ours_us, theirs_us = (
        (microseconds_captured([call] * 24) if small else microseconds(call)) for call in (ours, theirs)
    )
    moved = 2 * 2 * count * (3 * WIDTH + (MLP if gelu else 0))
    name = "rotate, write, GELU" if gelu else "rotate, write"
    return Row(name, f"{count} rows", ours_us, theirs_us, "torch, one by one", f"{moved / ours_us / 1e6:.2f} TB/s")


def rows() -> list[Row]:
    """Return decodes and prefills."""
    return [measure(count, gelu=gelu) for gelu in (False, True) for count in COUNTS]
