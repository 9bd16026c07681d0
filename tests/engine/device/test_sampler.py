import torch
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.engine.device.sampler import sample_tokens, uniforms
from stoop_worker.engine.skill import MOST_SUPPRESSED
from stoop_worker.engine.tensors import SamplingRows
from stoop_worker.kernels.sampling import sample


def rows(temperatures: list[float], suppressed: list[tuple[int, int]]) -> SamplingRows:
    """Return rows that sample by these temperatures; (row, id) places are suppressed, at most two a row."""
    count = len(temperatures)
    ids_B2 = torch.full((count, MOST_SUPPRESSED), -1, dtype=torch.int32)
    for row in range(count):
        own = [token for place, token in suppressed if place == row]
        ids_B2[row, : len(own)] = torch.tensor(own, dtype=torch.int32)
    drawn = torch.from_numpy(uniforms([5] * count, range(count)))
    return SamplingRows(torch.tensor(temperatures).double(), torch.full((count,), 0.9).double(), drawn, ids_B2)


def test_suppressed_ids_are_never_drawn_and_only_in_their_row() -> None:
    logits_BV = torch.tensor([[9.0, 5.0, 1.0]]).repeat(3, 1)
    assert sample_tokens(logits_BV, rows([0.0, 0.0, 0.001], [(1, 0), (2, 0), (2, 1)])).tolist() == [0, 1, 2]


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.7, 3.0]), min_size=1, max_size=8),
    st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 19), max_size=MOST_SUPPRESSED), max_size=8),
    st.integers(0, 2**20),
)
def test_a_suppressed_token_is_never_drawn_and_changes_no_other_row(
    temperatures: list[float], suppressed: dict[int, set[int]], seed: int
) -> None:
    count = len(temperatures)
    places = [(row, token) for row, tokens in suppressed.items() for token in sorted(tokens) if row < count]
    logits_BV = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))
    found = sample_tokens(logits_BV.clone(), rows(temperatures, places))
    for row, token in places:
        logits_BV[row, token] = float("-inf")
    alone = rows(temperatures, [])
    expected = sample(logits_BV, alone.temperatures_R, alone.top_ps_R, alone.uniforms_R)
    assert found.tolist() == expected.tolist()


def test_nothing_need_be_suppressed() -> None:
    assert sample_tokens(torch.tensor([[1.0, 2.0]]), rows([0.0], [])).tolist() == [1]


@given(st.integers(-(2**63), 2**64), st.integers(0, 10_000))
def test_uniforms_are_in_range_even_as_float32_and_the_same_in_any_batch(seed: int, count: int) -> None:
    other, value = uniforms([7, seed], [3, count])
    assert 0 <= value < 1
    assert float(torch.tensor(value, dtype=torch.float32)) == value
    assert [value] == uniforms([seed], [count]) and [other] == uniforms([7], [3])


def test_uniforms_are_those_of_earlier_releases() -> None:
    """Another sequence would change every seeded answer, and a release must not do that unnoticed."""
    assert (uniforms([0, 1, -1], [0, 0, 0]) * 2**24).tolist() == [14819496, 12578688, 10844024]


def test_uniforms_are_spread_evenly_over_counts_and_seeds() -> None:
    for values in (uniforms([5] * 4000, range(4000)), uniforms(range(4000), [5] * 4000)):
        tenths = torch.histc(torch.tensor(values), bins=10, min=0, max=1)
        assert tenths.min() > 330 and tenths.max() < 470


def test_a_seed_and_its_count_do_not_run_together() -> None:
    assert uniforms([1], [23]) != uniforms([12], [3])
