"""Choosing tokens of vocabularies that no program can hold, and within limits, as compiled kernels."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.sampling import Limits, mask_of, reference, sample

VOCABULARIES = [128_256, 151_936]
SMALL = 51_200


def logits_of(count: int, vocabulary: int, dtype: torch.dtype) -> Tensor:
    return (3 * torch.randn(count, vocabulary, device="cuda")).to(dtype)


def rules(count: int, temperature: float, top_p: float) -> tuple[Tensor, Tensor, Tensor]:
    whole = [torch.full((count,), value, dtype=torch.float64, device="cuda") for value in (temperature, top_p)]
    return whole[0], whole[1], torch.rand(count, dtype=torch.float64, device="cuda")


def limits_of(count: int, vocabulary: int, top_k: int) -> Limits:
    """Return limits of every kind; every third row has a mask, every second a top_k."""
    masks = torch.stack((mask_of(range(0, vocabulary, 3), vocabulary), mask_of(range(900, vocabulary), vocabulary)))
    row = torch.arange(count, device="cuda")
    return Limits(
        suppressed_B2=torch.randint(-1, vocabulary, (count, 2), dtype=torch.int32, device="cuda"),
        top_ks_B=torch.where(row % 2 == 0, top_k, 0).int(),
        masks_NW=masks.cuda(),
        mask_rows_B=torch.where(row % 3 == 0, row % 2, -1).int(),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_nearly_every_draw_is_the_reference_s(
    vocabulary: int, dtype: torch.dtype, temperature: float, top_p: float
) -> None:
    logits, asked = logits_of(512, vocabulary, dtype), rules(512, temperature, top_p)
    limits = Limits(torch.stack((logits.argmax(dim=-1), torch.full((512,), -1, device="cuda")), dim=1).int())
    found = sample(logits, *asked, limits)
    # The border of two tokens lies a little apart in two orders of one sum; flat rows have the most borders.
    agreed = (found == reference.sample(logits, *asked, limits)).double().mean()
    assert agreed >= (0.97 if temperature > 1 else 0.99)
    assert limits.suppressed_B2 is not None and (found != limits.suppressed_B2[:, 0]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("top_k", [1, 20, 1000])
@pytest.mark.parametrize("vocabulary", [SMALL, *VOCABULARIES])
def test_limits_of_every_kind(vocabulary: int, top_k: int, dtype: torch.dtype) -> None:
    logits, asked = logits_of(512, vocabulary, dtype), rules(512, 0.8, 0.9)
    limits = limits_of(512, vocabulary, top_k)
    found = sample(logits, *asked, limits)
    assert (found == reference.sample(logits, *asked, limits)).double().mean() >= 0.99


@pytest.mark.parametrize("count", [64, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_greedy_rows_take_the_lowest_of_the_largest(vocabulary: int, dtype: torch.dtype, count: int) -> None:
    logits = logits_of(count, vocabulary, dtype)
    cold, top_ps, uniforms = rules(count, 0.0, 0.5)
    cold[::3] = 5e-324
    assert torch.equal(sample(logits, cold, top_ps, uniforms).cpu(), logits.cpu().argmax(dim=-1))


Asked = tuple[Tensor, tuple[Tensor, Tensor, Tensor], Tensor]


def of_every_kind(count: int) -> Asked:
    """Return logits, rules and numbers of ids to keep: every third row is greedy, every fourth keeps all weights."""
    logits, asked = logits_of(count, VOCABULARIES[1], torch.bfloat16), rules(count, 0.8, 0.9)
    asked[0][::3] = 0
    asked[1][::4] = 1
    return logits, asked, (20 * (torch.arange(count, device="cuda") % 2)).int()


@pytest.mark.parametrize("count", [1, 64])
def test_launches_that_start_early_choose_the_same(count: int) -> None:
    inputs = [of_every_kind(count) for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "launches_early", lambda device: False)
        expected = [sample(logits, *asked, Limits(top_ks_B=top_ks)) for logits, asked, top_ks in inputs]
    logits, asked, top_ks = (torch.empty_like(inputs[0][0]), rules(count, 0.8, 0.9), inputs[0][2].clone())
    sample(logits, *asked, Limits(top_ks_B=top_ks))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sample(logits, *asked, Limits(top_ks_B=top_ks))
    for turn in range(40):
        new_logits, new_rules, new_top_ks = inputs[turn % 4]
        for place, value in zip((logits, *asked, top_ks), (new_logits, *new_rules, new_top_ks), strict=True):
            place.copy_(value)
        graph.replay()
        assert torch.equal(found, expected[turn % 4])


@pytest.mark.parametrize("count", [3, 64])
def test_rows_of_every_kind_go_together_and_alone(count: int) -> None:
    logits, asked, top_ks = of_every_kind(count)
    together = sample(logits, *asked, Limits(top_ks_B=top_ks))
    rows = [slice(row, row + 1) for row in range(count)]
    alone = [sample(logits[row], *(rule[row] for rule in asked), Limits(top_ks_B=top_ks[row])) for row in rows]
    assert torch.equal(together, torch.cat(alone))


def test_draws_follow_their_probabilities() -> None:
    logits = torch.full((1, VOCABULARIES[0]), -torch.inf, device="cuda")
    ids = torch.tensor([5, 4095, 4096, 70_000, VOCABULARIES[0] - 1], device="cuda")
    logits[0, ids] = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15], device="cuda").log()
    count = 4096
    temperatures, top_ps, _ = rules(count, 1.0, 1.0)
    evenly = (torch.arange(count, device="cuda").double() + 0.5) / count
    found = sample(logits.expand(count, -1), temperatures, top_ps, evenly)
    shares = torch.stack([(found == token).double().mean() for token in ids])
    expected = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15], dtype=torch.float64, device="cuda")
    torch.testing.assert_close(shares, expected, rtol=0, atol=2e-3)


def test_a_captured_draw_follows_the_rules() -> None:
    count, vocabulary = 16, VOCABULARIES[1]
    logits, asked = logits_of(count, vocabulary, torch.bfloat16), rules(count, 0.7, 0.8)
    limits = limits_of(count, vocabulary, 20)
    assert limits.top_ks_B is not None
    sample(logits, *asked, limits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sample(logits, *asked, limits)
    for temperature, top_p, top_k in ((0.0, 0.8, 20), (0.7, 0.8, 0), (1.0, 1.0, 5), (0.7, 0.3, 20)):
        logits.normal_()
        asked[0].fill_(temperature)
        asked[1].fill_(top_p)
        asked[2].uniform_()
        limits.top_ks_B.fill_(top_k)
        graph.replay()
        assert torch.equal(found, sample(logits, *asked, limits))
