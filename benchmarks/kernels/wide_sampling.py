"""Times the choice of tokens from vocabularies too large for one program, bfloat16 logits."""

from functools import partial

import torch

from benchmarks.kernels.row import Row, microseconds_captured
from benchmarks.kernels.sampling import by_sorting
from stoop_worker.kernels.sampling import Limits, reference
from stoop_worker.kernels.sampling.wide import sample
from stoop_worker.kernels.sampling.wide_search import WideShape

__all__ = ["alternatives", "rows"]

VOCABULARIES = [128_256, 151_936]
BATCHES = [1, 16, 64, 128]
SHAPES = [
    WideShape(chunk, held, warps)
    for chunk, held in ((2048, 512), (2048, 1024), (4096, 512), (4096, 1024), (8192, 1024))
    for warps in (4, 8)
]


def measure(batch: int, vocabulary: int, temperature: float, *, top_k: int = 0, shape: WideShape | None = None) -> Row:
    logits = (3 * torch.randn(batch, vocabulary, device="cuda")).bfloat16()
    one = partial(torch.full, (batch,), dtype=torch.float64, device="cuda")
    asked = logits, one(fill_value=temperature), one(fill_value=0.9), torch.rand(batch, device="cuda").double()
    suppressed = torch.full((batch, 2), -1, dtype=torch.int32, device="cuda")
    top_ks = torch.full((batch,), top_k, dtype=torch.int32, device="cuda")
    limits = Limits(suppressed, top_ks if top_k else None)
    found, expected = sample(*asked, limits, shape), reference.sample(*asked, limits)
    # a draw at the border of two tokens may give either, depending on the order of the sum
    if (found != expected).sum() > max(1, batch // 50):
        raise ValueError(f"{(found != expected).sum()} of {batch} draws differ from the reference's")
    ours = microseconds_captured([partial(sample, *asked, limits, shape)] * 4)
    compared = shape is None and not top_k
    theirs = microseconds_captured([partial(by_sorting, *asked, suppressed)]) if compared else None
    name = f"draw, top_k {top_k}" if top_k else "draw" if temperature else "greedy"
    name = name if shape is None else str(shape)
    rate = f"{batch / ours:.2f} rows/us"
    return Row(name, f"{batch} x {vocabulary}", ours, theirs, "torch, by sorting" if theirs else "", rate)


def rows() -> list[Row]:
    """Return greedy batches, batches that draw, and batches that draw with a top_k."""
    cases = [(0.0, 0), (0.7, 0), (0.7, 20)]
    return [
        measure(batch, vocabulary, temperature, top_k=top_k)
        for vocabulary in VOCABULARIES
        for temperature, top_k in cases
        for batch in BATCHES
    ]


def alternatives() -> list[Row]:
    """Return other shapes of a chunk."""
    return [measure(batch, VOCABULARIES[1], 0.7, shape=shape) for batch in (1, 64) for shape in SHAPES]
