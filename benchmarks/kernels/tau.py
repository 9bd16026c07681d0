"""Times the temperature of attention at Moondream 3's sizes, with the rotation and the write, against torch."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.row import Row, check, least_us, microseconds, microseconds_captured
from stoop_worker.kernels.rotate_write import Places, rotate_write, rotation_table
from stoop_worker.kernels.tau import Heat, reference, tau_parts

__all__ = ["bytes_moved", "rows"]

WIDTH, HEADS = 2048, 32
CASES = [1, 16, 64, 256, 3000]


def measure(tokens: int) -> Row:
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    qkv, w, alpha = made(tokens, 3 * WIDTH), made(2 * HEADS, 3 * WIDTH) / 80, made(HEADS)
    pool = made(2, 256, 16, HEADS, WIDTH // HEADS)
    positions = torch.arange(tokens, device="cuda") % 2048
    places = Places(
        positions, rotation_table(2048, 32, 1.5e6, torch.device("cuda")), torch.arange(tokens, device="cuda")
    )

    def fused() -> Tensor:
        heat = Heat(tau_parts(qkv, w, tanh_gelu=False), alpha)
        return rotate_write(qkv, Places(positions, places.table_SF2, places.slots_T, heat=heat), pool)

    def apart() -> Tensor:
        heat = Heat(reference.tau_parts(qkv, w, tanh_gelu=False), alpha)
        return rotate_write(reference.temper(qkv, reference.scales(heat, positions)), places, pool)

    check(fused(), apart(), 1e-2)
    ours_us, theirs_us = (
        microseconds_captured([call] * 24) if tokens <= 256 else microseconds(call) for call in (fused, apart)
    )
    moved = bytes_moved(tokens)
    rate = f"{moved / ours_us / 1e6:.2f} TB/s"
    least = least_us(bytes=moved)
    return Row("tau, rope, KV write", f"{tokens} tokens", ours_us, theirs_us, "torch, then ours", rate, least)


def bytes_moved(tokens: int) -> int:
    """Return the bytes that must be read and written: q, k and v, tau's weights, the rotated q, and k and v again."""
    return 2 * (tokens * (3 + 1 + 2) * WIDTH + 2 * HEADS * 3 * WIDTH)


def rows() -> list[Row]:
    """Return decodes and a prefill."""
    return [measure(tokens) for tokens in CASES]
