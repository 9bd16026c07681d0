"""Times the rotation of an encoder's queries and keys, at the sizes of Qwen3-VL's photos, bfloat16."""

from functools import partial

import torch

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.rotate_heads import reference, rotate_heads

__all__ = ["rows"]

PATCHES = [1024, 2052, 8208]
HEADS, CHANNELS = 16, 64


def measure(patches: int) -> Row:
    qkv = torch.randn(patches, 3, HEADS, CHANNELS, device="cuda", dtype=torch.bfloat16)
    angles = 9 * torch.rand(patches, CHANNELS // 2, device="cuda")
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
    found, expected = qkv.clone(), qkv.clone()
    rotate_heads(found, rotations)
    reference.rotate_heads(expected, rotations)
    check(found, expected, 2e-2)
    ours_us, theirs_us = (
        microseconds_captured([partial(rotate, found, rotations)] * 24)
        for rotate in (rotate_heads, reference.rotate_heads)
    )
    rate = f"{patches * HEADS * CHANNELS * 2 * 2 * 2 / ours_us / 1e6:.2f} TB/s"
    return Row("rotate heads", f"{patches} x {HEADS} x {CHANNELS}", ours_us, theirs_us, "torch, one by one", rate)


def rows() -> list[Row]:
    """Return images of several sizes."""
    return [measure(patches) for patches in PATCHES]
