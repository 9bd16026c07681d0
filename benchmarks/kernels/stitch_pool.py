"""Times both views of a batch of images: 27 x 27 patches of 1152 features, bfloat16."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.kernels.stitch_pool import global_and_local
from stoop_worker.kernels.stitch_pool.reference import stitch_pool

__all__ = ["rows"]

MARGIN = 4
BATCHES = {"1 of 2 x 4": [(2, 4)], "8 of 2 x 4": [(2, 4)] * 8, "4 of several": [(1, 1), (3, 4), (2, 2), (1, 6)]}


def torch_views(features_NPD: Tensor, tilings: list[tuple[int, int, int, int]]) -> Tensor:
    views = []
    for whole, first, high, wide in tilings:
        local = features_NPD[first : first + high * wide]
        pooled = stitch_pool(local, rows=high, cols=wide, margin=MARGIN)
        views.append(torch.cat((features_NPD[whole], pooled), dim=-1))
    return torch.stack(views)


def measure(name: str, tilings: list[tuple[int, int]]) -> Row:
    table, crops = [], 0
    for high, wide in tilings:
        table.append((crops, crops if high * wide == 1 else crops + 1, high, wide))
        crops += 1 if high * wide == 1 else 1 + high * wide
    features = torch.randn(crops, 729, 1152, device="cuda", dtype=torch.bfloat16)
    on_device = torch.tensor(table, dtype=torch.int32, device="cuda")
    ours = partial(global_and_local, features, on_device, margin=MARGIN)
    plain = partial(torch_views, features, table)
    check(ours(), torch_views(features.float(), table), 5e-3)
    ours_us = microseconds(ours)
    rate = f"{2 * (features.numel() + len(table) * 729 * 2304) / ours_us / 1e6:.2f} TB/s"
    return Row("stitch and pool", f"{name}, {crops} crops", ours_us, microseconds(plain), "torch, one by one", rate)


def rows() -> list[Row]:
    """Return one image, several of one tiling, and several of different tilings."""
    return [measure(name, tilings) for name, tilings in BATCHES.items()]
