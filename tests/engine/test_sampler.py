import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from worker.engine.sampler import Draws, draw, uniform
from worker.kernels.sampling import sample


def draws(temperatures: list[float], suppressed: list[tuple[int, int]]) -> Draws:
    rows = [row for row, temperature in enumerate(temperatures) if temperature]
    return Draws(
        rows_S=torch.tensor(rows, dtype=torch.int64),
        temperatures_S=torch.tensor([temperatures[row] for row in rows], dtype=torch.float64),
        top_ps_S=torch.full((len(rows),), 0.9, dtype=torch.float64),
        uniforms_S=torch.tensor([uniform(5, row) for row in rows], dtype=torch.float64),
        suppressed_rows_N=torch.tensor([row for row, _ in suppressed], dtype=torch.int64),
        suppressed_ids_N=torch.tensor([token for _, token in suppressed], dtype=torch.int64),
    )


def test_suppressed_ids_are_never_drawn_and_only_in_their_row() -> None:
    logits_BV = torch.tensor([[9.0, 5.0, 1.0]]).repeat(3, 1)
    assert draw(logits_BV, draws([0.0, 0.0, 0.001], [(1, 0), (2, 0), (2, 1)])).tolist() == [0, 1, 2]


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.7, 3.0]), min_size=1, max_size=8),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 19)), max_size=15),
    st.integers(0, 2**20),
)
def test_every_row_draws_what_all_rows_sampled_together_would(
    temperatures: list[float], suppressed: set[tuple[int, int]], seed: int
) -> None:
    count = len(temperatures)
    places = sorted(place for place in suppressed if place[0] < count)
    logits_BV = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))
    found = draw(logits_BV.clone(), draws(temperatures, places))
    for row, token in places:
        logits_BV[row, token] = float("-inf")
    uniforms = torch.tensor([uniform(5, row) for row in range(count)], dtype=torch.float64)
    expected = sample(logits_BV, torch.tensor(temperatures).double(), torch.full((count,), 0.9).double(), uniforms)
    assert found.tolist() == expected.tolist()


def test_only_sampled_rows_are_sorted() -> None:
    sorted_rows: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if "sort" in str(func):
                sorted_rows.append(args[0].shape[0])
            return func(*args, **(kwargs or {}))

    for temperatures in ([0.0] * 4, [0.0, 0.5, 0.0, 0.5]):
        with Watch():
            draw(torch.randn(4, 20), draws(temperatures, []))
    assert sorted_rows == [2]


def test_nothing_need_be_suppressed() -> None:
    assert draw(torch.tensor([[1.0, 2.0]]), draws([0.0], [])).tolist() == [1]


@given(st.integers(0, 2**63), st.integers(0, 10_000))
def test_uniforms_are_in_range_even_as_float32(seed: int, count: int) -> None:
    value = uniform(seed, count)
    assert 0 <= value < 1
    assert float(torch.tensor(value, dtype=torch.float32)) == value
    assert value == uniform(seed, count)


def test_uniforms_are_spread_evenly_over_counts_and_seeds() -> None:
    for values in ([uniform(5, count) for count in range(4000)], [uniform(seed, 5) for seed in range(4000)]):
        tenths = torch.histc(torch.tensor(values), bins=10, min=0, max=1)
        assert tenths.min() > 330 and tenths.max() < 470


def test_a_seed_and_its_count_do_not_run_together() -> None:
    assert uniform(1, 23) != uniform(12, 3)
