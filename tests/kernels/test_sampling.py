from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stoop_worker.kernels.sampling import LEAST_TEMPERATURE, Limits, mask_of, sample, top_k_filter, top_p_filter

PROBABILITIES = (0.5, 0.3, 0.15, 0.05)


def draw(probabilities: list[float], *, temperature: float, top_p: float, uniforms: Tensor) -> Tensor:
    rows = len(uniforms)
    logits = torch.tensor(probabilities).log().expand(rows, -1)
    return sample(logits, torch.full((rows,), temperature), torch.full((rows,), top_p), uniforms)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.0, [0.5]), (0.3, [0.5]), (0.5, [0.5, 0.3]), (0.79, [0.5, 0.3]), (0.9, [0.5, 0.3, 0.15]), (1.0, PROBABILITIES)],
)
def test_top_p_keeps_the_token_that_crosses_it(top_p: float, kept: list[float]) -> None:
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        probabilities = torch.tensor([PROBABILITIES])[:, order]
        found = top_p_filter(probabilities, torch.tensor([top_p]))
        assert sorted(found[found > 0].tolist(), reverse=True) == pytest.approx(kept)
        assert torch.equal(found[found > 0], probabilities[found > 0])


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, 1), (0.4, 4), (0.7, 4), (0.9, 4), (0.99, 5)])
def test_tokens_as_likely_as_the_last_one_within_top_p_are_kept(top_p: float, kept: int) -> None:
    probabilities = torch.tensor([[0.2, 0.03125, 0.2, 0.36875, 0.2, 0.0]], dtype=torch.float64)
    assert (top_p_filter(probabilities, torch.tensor([top_p]).double())[0] > 0).sum() == kept


@pytest.mark.parametrize(
    ("top_p", "shares"), [(0.3, [1]), (0.5, [0.625, 0.375]), (0.9, [0.5263, 0.3158, 0.1579]), (1.0, PROBABILITIES)]
)
def test_kept_tokens_are_drawn_by_their_renormalised_probabilities(top_p: float, shares: list[float]) -> None:
    order = [2, 0, 3, 1]  # not in order of likelihood
    probabilities = [0.0] * 4
    for token, probability in zip(order, PROBABILITIES, strict=True):
        probabilities[token] = probability
    evenly = (torch.arange(10_000) + 0.5) / 10_000
    counts = Counter(draw(probabilities, temperature=1.0, top_p=top_p, uniforms=evenly).tolist())
    assert set(counts) == set(order[: len(shares)])
    assert [counts[token] / 10_000 for token in order[: len(shares)]] == pytest.approx(shares, abs=2e-4)


def test_temperature_sharpens() -> None:
    evenly = (torch.arange(1000) + 0.5) / 1000
    ids = draw([0.8, 0.2], temperature=0.5, top_p=1.0, uniforms=evenly)
    assert (ids == 0).float().mean() == pytest.approx(0.64 / 0.68, abs=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_temperature_zero_takes_the_lowest_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0, 7, 1, 7], [5, 5, 5, 5]], dtype=dtype)
    ids = sample(logits, torch.zeros(2), torch.ones(2), torch.full((2,), 0.99))
    assert ids.tolist() == [1, 0]


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=40),
    st.floats(0.01, 4),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.5, 1 - 2**-24]),
)
def test_every_row_draws_a_kept_token_alone_or_in_a_batch(
    logits: list[float], temperature: float, top_p: float, uniform: float
) -> None:
    row = torch.tensor([logits])
    alone = sample(row, torch.tensor([temperature]), torch.tensor([top_p]), torch.tensor([uniform]))
    others = torch.stack((row[0].flip(0), row[0], torch.zeros(len(logits))))
    batch = sample(
        others,
        torch.tensor([0.0, temperature, 1.0]),
        torch.tensor([0.5, top_p, 0.1]),
        torch.tensor([0.1, uniform, 0.7]),
    )
    assert batch[1] == alone[0]
    probabilities = (row[0] / temperature).softmax(-1)
    likelier = probabilities[probabilities > probabilities[alone[0]]].sum().item()
    assert likelier <= top_p + 1e-5


def test_tokens_are_drawn_in_the_order_of_their_ids() -> None:
    evenly = (torch.arange(100) + 0.5) / 100
    ids = draw([0.2, 0.5, 0.1, 0.2], temperature=1.0, top_p=0.95, uniforms=evenly)
    assert ids.tolist() == [0] * 20 + [1] * 50 + [2] * 10 + [3] * 20


def test_a_suppressed_token_is_never_drawn() -> None:
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf")]]).expand(3, -1)
    ids = sample(logits, torch.tensor([0.0, 1.0, 1.0]), torch.ones(3), torch.tensor([0.5, 0.0, 1 - 2**-24]))
    assert ids.tolist() == [1, 1, 1]


def test_a_row_never_chooses_its_suppressed_tokens() -> None:
    logits = torch.tensor([[9.0, 5.0, 1.0]]).expand(5, -1)
    suppressed = torch.tensor([[-1, -1], [0, -1], [-1, 0], [1, 0], [0, 0]], dtype=torch.int32)
    for temperature in (0.0, 0.01):
        warm = torch.full((5,), temperature)
        ids = sample(logits, warm, torch.ones(5), torch.full((5,), 0.5), Limits(suppressed))
        assert ids.tolist() == [0, 1, 1, 2, 1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-38, 1e-20, 9.9e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_tiny_temperature_is_greedy(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[0, 5, 1], [-1e4, 3e4, 2e4]], dtype=dtype)
    cold = torch.full((2,), temperature, dtype=torch.float64)
    assert sample(logits, cold, torch.ones(2), torch.full((2,), 0.99)).tolist() == [1, 1]


def test_the_least_temperature_is_sampled_without_overflow() -> None:
    logits = torch.tensor([[1e5, 1e5, -1e5, -float("inf")]]).expand(2, -1)
    least = torch.full((2,), LEAST_TEMPERATURE, dtype=torch.float64)
    assert sample(logits, least, torch.ones(2), torch.tensor([0.1, 0.9])).tolist() == [0, 1]


def test_a_temperature_beyond_float32_draws_evenly_from_the_allowed_tokens() -> None:
    logits = torch.tensor([[0.0, 5.0, -float("inf"), 1.0]]).expand(3, -1)
    hot = torch.full((3,), 1e300, dtype=torch.float64)
    assert sample(logits, hot, torch.ones(3), torch.tensor([0.1, 0.5, 0.9])).tolist() == [0, 1, 3]


@pytest.mark.parametrize(("top_k", "kept"), [(0, 5), (1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (9, 5)])
def test_top_k_keeps_tokens_as_likely_as_the_last_one(top_k: int, kept: int) -> None:
    logits = torch.tensor([[1.0, 3.0, 1.0, -2.0, 1.0]])
    assert torch.isfinite(top_k_filter(logits, torch.tensor([top_k]).int())[0]).sum() == kept


def test_top_p_is_a_share_of_the_tokens_that_top_k_keeps() -> None:
    evenly = (torch.arange(1000) + 0.5) / 1000
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(1000, -1)
    # the first has 0.571 of the two likeliest, which is enough for 0.5, but less of the whole
    limits = Limits(top_ks_B=torch.full((1000,), 2).int())
    ids = sample(logits, torch.ones(1000), torch.full((1000,), 0.5), evenly, limits)
    assert set(ids.tolist()) == {0}
    assert set(sample(logits, torch.ones(1000), torch.full((1000,), 0.5), evenly).tolist()) == {0, 1}


def test_rows_draw_within_their_masks() -> None:
    logits = torch.arange(70.0).expand(4, -1)
    masks = torch.stack((mask_of([3, 31, 32], 70), mask_of([0], 70)))
    limits = Limits(masks_NW=masks, mask_rows_B=torch.tensor([-1, 0, 1, 0]).int())
    cold = torch.tensor([0.0, 0.0, 1.0, 100.0])
    ids = sample(logits, cold, torch.ones(4), torch.tensor([0.5, 0.5, 0.5, 0.0]), limits)
    assert ids.tolist() == [69, 32, 0, 3]
