"""Times the embeddings of a decode step against torch's own calls, bfloat16."""

from functools import partial

import torch

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.embedding import embed, reference

__all__ = ["rows"]

CASES = [(1, 51_200, 2048), (64, 51_200, 2048), (1, 151_936, 2560), (64, 151_936, 2560)]


def measure(count: int, vocabulary: int, width: int) -> Row:
    table = torch.randn(vocabulary, width, device="cuda", dtype=torch.bfloat16)
    last, index = torch.randint(vocabulary, (count,), device="cuda"), torch.arange(count, device="cuda")
    given = torch.full_like(index, -1), index, last, table
    check(embed(*given), reference.embed(*given), 0.0)
    calls = partial(embed, *given), partial(reference.embed, *given)
    ours_us, theirs_us = (microseconds_captured([call] * 24) for call in calls)
    return Row(
        "embeddings of a step", f"{count} of {vocabulary} x {width}", ours_us, theirs_us, "torch, one by one", ""
    )


def rows() -> list[Row]:
    """Return one row and 64 rows of Moondream 2 and of Qwen3-4B."""
    return [measure(*case) for case in CASES]
