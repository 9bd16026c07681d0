"""Times the choice of tokens from a vocabulary of 51,200, bfloat16 logits."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.row import Row, microseconds_captured
from stoop_worker.kernels.sampling import Limits, reference
from stoop_worker.kernels.sampling.kernel import Shape, sample

__all__ = ["alternatives", "rows"]

VOCABULARY = 51200
BATCHES = [1, 16, 64, 128]
SHAPES = [Shape(cols, warps) for cols in (128, 256, 512, 1024) for warps in (8, 16, 32)]


def by_sorting(logits: Tensor, temperatures: Tensor, top_ps: Tensor, uniforms: Tensor, suppressed: Tensor) -> Tensor:
    """Do the same with torch's own functions, without waiting for the device."""
    logits = logits.float()
    for ids in suppressed.long().unbind(1):
        at = ids.clamp(min=0)[:, None]
        logits = logits.scatter(1, at, torch.where(ids[:, None] < 0, logits.gather(1, at), float("-inf")))
    probabilities = torch.softmax(logits / temperatures.float().clamp(min=1e-4)[:, None], dim=-1)
    ordered, order = probabilities.sort(dim=-1, descending=True)
    running = ordered.cumsum(-1)
    kept = torch.where(running - ordered <= top_ps[:, None], ordered, 0).cumsum(-1)
    place = (kept <= uniforms.float()[:, None] * kept[:, -1:]).sum(-1, keepdim=True).clamp(max=logits.shape[1] - 1)
    return torch.where(temperatures < reference.LEAST_TEMPERATURE, logits.argmax(-1), order.gather(1, place)[:, 0])


def measure(batch: int, temperature: float, shape: Shape | None = None) -> Row:
    logits = (3 * torch.randn(batch, VOCABULARY, device="cuda")).bfloat16()
    one = partial(torch.full, (batch,), dtype=torch.float64, device="cuda")
    uniforms = torch.rand(batch, device="cuda", dtype=torch.float64)
    suppressed = torch.full((batch, 2), -1, dtype=torch.int32, device="cuda")
    asked = logits, one(fill_value=temperature), one(fill_value=0.9), uniforms
    limits = Limits(suppressed)
    found, expected = sample(*asked, limits, shape), reference.sample(*asked, limits)
    # a draw at the border of two tokens may give either, depending on the order of the sum
    if (found != expected).sum() > max(1, batch // 100):
        raise ValueError(f"{(found != expected).sum()} of {batch} draws differ from the reference's")
    ours = microseconds_captured([partial(sample, *asked, limits, shape)] * 4)
    theirs = microseconds_captured([partial(by_sorting, *asked, suppressed)]) if shape is None else None
    name = ("draw" if temperature else "greedy") if shape is None else str(shape).replace("Shape", "draw")
    rate = f"{batch / ours:.2f} rows/us"
    return Row(name, f"{batch} x {VOCABULARY}", ours, theirs, "torch, by sorting" if theirs else "", rate)


def rows() -> list[Row]:
    """Return greedy batches and batches that draw."""
    return [measure(batch, temperature) for temperature in (0.0, 0.5) for batch in BATCHES]


def alternatives() -> list[Row]:
    """Return other shapes of a program."""
    return [measure(64, 0.5, shape) for shape in SHAPES]
