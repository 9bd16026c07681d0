import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.sampler import Draws, draw, uniform


def draws(temperatures: list[float], suppressed: list[tuple[int, int]]) -> Draws:
    count = len(temperatures)
    return Draws(
        greedy=not any(temperatures),
        temperatures_B=torch.tensor(temperatures, dtype=torch.float64),
        top_ps_B=torch.ones(count, dtype=torch.float64),
        uniforms_B=torch.full((count,), 0.5, dtype=torch.float64),
        suppressed_rows_N=torch.tensor([row for row, _ in suppressed], dtype=torch.int64),
        suppressed_ids_N=torch.tensor([token for _, token in suppressed], dtype=torch.int64),
    )


def test_suppressed_ids_are_never_drawn_and_only_in_their_row() -> None:
    logits_BV = torch.tensor([[9.0, 5.0, 1.0]]).repeat(3, 1)
    assert draw(logits_BV, draws([0.0, 0.0, 0.001], [(1, 0), (2, 0), (2, 1)])).tolist() == [0, 1, 2]


def test_a_greedy_batch_draws_as_its_rows_would_beside_a_warm_one() -> None:
    logits_BV = torch.tensor([[1.0, 7.0, 7.0], [9.0, 5.0, 1.0], [2.0, 3.0, 4.0]])
    suppressed = [(1, 0)]
    alone = draw(logits_BV.clone(), draws([0.0, 0.0, 0.0], suppressed)).tolist()
    assert alone == [1, 1, 2]
    assert draw(logits_BV.clone(), draws([0.0, 0.0, 0.5], suppressed)).tolist()[:2] == alone[:2]


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
