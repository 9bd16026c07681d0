"""Choosing tokens as a compiled kernel, at the size of Moondream 2's vocabulary."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.sampling import Limits, reference, sample

VOCABULARY = 51200


def rules(count: int, temperature: float, top_p: float) -> tuple[Tensor, Tensor, Tensor]:
    whole = [torch.full((count,), value, dtype=torch.float64, device="cuda") for value in (temperature, top_p)]
    return whole[0], whole[1], torch.rand(count, dtype=torch.float64, device="cuda")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.9, 1.0])
def test_nearly_every_draw_is_the_reference_s(dtype: torch.dtype, temperature: float, top_p: float) -> None:
    logits = (3 * torch.randn(1024, VOCABULARY, device="cuda")).to(dtype)
    asked = rules(1024, temperature, top_p)
    suppressed = torch.stack((logits.argmax(dim=-1), torch.full((1024,), -1, device="cuda")), dim=1).int()
    found = sample(logits, *asked, Limits(suppressed))
    # the border of two tokens lies a little apart in two orders of one sum
    assert (found == reference.sample(logits, *asked, Limits(suppressed))).double().mean() >= 0.995
    assert (found != suppressed[:, 0]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_greedy_rows_take_the_lowest_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.randn(256, VOCABULARY, device="cuda").to(dtype)
    cold, top_ps, uniforms = rules(256, 0.0, 0.5)
    cold[::3] = 5e-324
    expected = logits.cpu().argmax(dim=-1)
    assert torch.equal(sample(logits, cold, top_ps, uniforms).cpu(), expected)


def test_greedy_and_drawn_rows_go_together_and_alone() -> None:
    logits = (3 * torch.randn(64, VOCABULARY, device="cuda")).bfloat16()
    asked = rules(64, 0.8, 0.9)
    asked[0][::2] = 0
    together = sample(logits, *asked)
    alone = [sample(logits[row : row + 1], *(rule[row : row + 1] for rule in asked)) for row in range(64)]
    assert torch.equal(together, torch.cat(alone))


def test_draws_follow_their_probabilities() -> None:
    logits = torch.full((20_000, VOCABULARY), -float("inf"), device="cuda", dtype=torch.bfloat16)
    places, shares = [7, 30_000, 51_199], [0.5, 0.25, 0.25]
    logits[:, places] = torch.tensor(shares, device="cuda").log().bfloat16()
    counts = sample(logits, *rules(20_000, 1.0, 1.0)).bincount(minlength=VOCABULARY) / 20_000
    assert counts[places].tolist() == pytest.approx(shares, abs=0.02)


def test_it_can_be_captured() -> None:
    logits = torch.randn(8, VOCABULARY, device="cuda").bfloat16()
    asked = rules(8, 0.7, 0.9)
    suppressed = torch.full((8, 2), -1, dtype=torch.int32, device="cuda")
    sample(logits, *asked, Limits(suppressed))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sample(logits, *asked, Limits(suppressed))
    for _ in range(3):
        logits.normal_()
        suppressed[:, 1] = logits.argmax(dim=-1)
        graph.replay()
        assert torch.equal(found, sample(logits, *asked, Limits(suppressed)))
        assert (found != suppressed[:, 1]).all()
