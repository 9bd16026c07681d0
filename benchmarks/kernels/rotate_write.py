"""Times rotation and the write to the pool, bfloat16.

At the sizes of Moondream 2, rows of 3 x 2048 and 8192 columns, and at those of decoders with grouped heads.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.rope import rope
from stoop_worker.kernels.rotate_write import (
    HeadNorms,
    Places,
    reference,
    rotate_write,
    rotate_write_gelu,
    rotation_table,
)

__all__ = ["rows"]

HEADS, HEAD_DIM, ROTARY, PAGE = 32, 64, 32, 16
WIDTH, MLP = HEADS * HEAD_DIM, 8192
COUNTS = [1, 64, 750, 6000]


def torch_calls(qkv_TC: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor) -> Tensor:
    """Do the same with torch's own functions."""
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
        ours = partial(rotate_write_gelu, x, Places(positions, table, slots), pool, out_TM=outs[0])
        right = partial(reference.rotate_write_gelu, x, Places(positions, table, slots), other, out_TM=outs[1])
        theirs = partial(torch_calls_gelu, x, positions, table, other, slots, out_TM=outs[1])
    else:
        ours = partial(rotate_write, x, Places(positions, table, slots), pool)
        right = partial(reference.rotate_write, x, Places(positions, table, slots), other)
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


def torch_calls_grouped(qkv_TN: Tensor, places: Places, pool: Tensor, norms: HeadNorms | None) -> Tensor:
    key_heads, head_dim = pool.shape[3:]
    qkv_THD = qkv_TN.view(len(qkv_TN), -1, head_dim)
    q_THD, k_TKD, v_TKD = qkv_THD[:, : -2 * key_heads], *qkv_THD[:, -2 * key_heads :].chunk(2, dim=1)
    if norms is not None:
        q_THD = functional.rms_norm(q_THD, (head_dim,), norms.q_D, norms.epsilon)
        k_TKD = functional.rms_norm(k_TKD, (head_dim,), norms.k_D, norms.epsilon)
    cos_TF, sin_TF = places.table_SF2[places.positions].unbind(-1)
    keys, values = pool.view(2, -1, key_heads, head_dim)
    keys.index_copy_(0, places.slots_T, rope(k_TKD, (cos_TF, sin_TF)))
    values.index_copy_(0, places.slots_T, v_TKD)
    return rope(q_THD, (cos_TF, sin_TF))


def measure_grouped(count: int, sizes: tuple[int, int, int], *, normed: bool) -> Row:
    heads, key_heads, head_dim = sizes
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    pages = count // PAGE + 8
    pool, other = (made(2, pages, PAGE, key_heads, head_dim) for _ in range(2))
    other.copy_(pool)
    table = rotation_table(2048, head_dim, 500000.0, torch.device("cuda"))
    slots = torch.randperm(pages * PAGE, device="cuda")[:count]
    places = Places(torch.arange(count, device="cuda") % 2048, table, slots)
    norms = HeadNorms(made(head_dim), made(head_dim), 1e-6) if normed else None
    x = made(count, (heads + 2 * key_heads) * head_dim)
    ours = partial(rotate_write, x, places, pool, norms=norms)
    theirs = partial(torch_calls_grouped, x, places, other, norms)
    check(ours(), reference.rotate_write(x, places, other, norms=norms), 2e-3)
    check(pool, other, 2e-3)
    ours_us, theirs_us = (
        (microseconds_captured([call] * 24) if count <= 64 else microseconds(call)) for call in (ours, theirs)
    )
    name = "norm, rotate, write" if normed else "rotate, write"
    shape = f"{count} rows, {heads}/{key_heads} x {head_dim}"
    return Row(name, shape, ours_us, theirs_us, "torch, one by one", f"{4 * x.numel() / ours_us / 1e6:.2f} TB/s")


def rows() -> list[Row]:
    """Return decodes and prefills."""
    moondream = [measure(count, gelu=gelu) for gelu in (False, True) for count in COUNTS]
    llama = [measure_grouped(count, (32, 8, 64), normed=False) for count in COUNTS]
    return [*moondream, *llama, *(measure_grouped(count, (32, 8, 128), normed=True) for count in COUNTS)]
