"""Times the corrections of a layer of Moondream 2 under eight adapters against torch's products masked to each row's.

The bytes of the rate are those of all adapters, which a kernel reads at least once if every adapter has a row.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.low_rank import Groups, Term, correct, correction, group_rows, thin_values

__all__ = ["rows"]

WIDTH, INNER, ADAPTERS, RANK = 2048, 8192, 8, 16
LAYERS = {"qkv": (WIDTH, 3 * WIDTH), "fc1": (WIDTH, INNER), "proj": (WIDTH, WIDTH), "fc2": (INNER, WIDTH)}
COPIES = 8  # of the adapters: 80 MB, more than a cache holds
ROWS = [1, 16, 64]

_Adapters = Mapping[str, tuple[Tensor, Tensor]]


def adapters() -> _Adapters:
    """Return A and B of each layer, for all adapters and for number 0."""
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    columns = RANK * (ADAPTERS + 1)
    return {name: (made(columns, i) / i**0.5, made(columns, o) / RANK**0.5) for name, (i, o) in LAYERS.items()}


def ours(normed: Tensor, inner: Tensor, layer: _Adapters, groups: Groups) -> tuple[Tensor, Tensor]:
    """Return the corrections of a block's first product, and those of its second."""
    first = torch.zeros(len(normed), 3 * WIDTH + INNER, device="cuda", dtype=torch.bfloat16)
    qkv, fc1, proj = thin_values(normed, [layer[name][0] for name in ("qkv", "fc1", "proj")], groups, RANK)
    correct(first, [Term(qkv, layer["qkv"][1]), Term(fc1, layer["fc1"][1], 3 * WIDTH)], groups)
    (fc2,) = thin_values(inner, [layer["fc2"][0]], groups, RANK)
    return first, correction([Term(proj, layer["proj"][1]), Term(fc2, layer["fc2"][1])], groups)


def theirs(normed: Tensor, inner: Tensor, layer: _Adapters, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same with products over all adapters."""

    def correct_one(name: str, x: Tensor) -> Tensor:
        return functional.linear(x, layer[name][0]) * mask @ layer[name][1]

    first = torch.cat((correct_one("qkv", normed), correct_one("fc1", normed)), dim=1)
    return first, correct_one("proj", normed) + correct_one("fc2", inner)


def measure(count: int) -> Row:
    """Time one number of rows, which have the adapters in turn."""
    layers = [adapters() for _ in range(COPIES)]
    normed, inner = (torch.randn(count, width, device="cuda", dtype=torch.bfloat16) for width in (WIDTH, INNER))
    numbers = torch.arange(count, device="cuda") % ADAPTERS + 1
    mask = functional.one_hot(numbers, ADAPTERS + 1).bfloat16().repeat_interleave(RANK, dim=1)
    groups = group_rows(numbers, ADAPTERS + 1, like=normed)
    for found, expected in zip(
        ours(normed, inner, layers[0], groups), theirs(normed, inner, layers[0], mask), strict=True
    ):
        check(found, expected, 1e-2)
    ours_us = microseconds_captured([partial(ours, normed, inner, layer, groups) for layer in layers])
    theirs_us = microseconds_captured([partial(theirs, normed, inner, layer, mask) for layer in layers])
    read = 2 * RANK * min(count, ADAPTERS) * sum(i + o for i, o in LAYERS.values())
    return Row(
        "adapters of a layer", f"{count} rows", ours_us, theirs_us, "torch, masked", f"{read / ours_us / 1e6:.2f} TB/s"
    )


def rows() -> list[Row]:
    """Return decodes of Moondream 2 under adapters."""
    return [measure(count) for count in ROWS]
