import pytest
import torch

from worker.kernels.sampling import reference
from worker.kernels.sampling.kernel import Shape, sample

ROWS = 40


def asked(vocabulary: int, seed: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(ROWS, vocabulary, generator=random)
    temperatures = torch.tensor([0.0, 0.3, 1.0, 5e-324, 2.5, 1e300, 0.7, 1e-4]).double().repeat(ROWS // 8)
    top_ps = torch.tensor([0.3, 0.9, 1.0, 0.5, 0.0]).double().repeat(ROWS // 5)
    uniforms = torch.rand(ROWS, generator=random).double()
    suppressed = torch.randint(-1, vocabulary, (ROWS, 2), generator=random, dtype=torch.int32)
    suppressed[::2, 0] = logits[::2].argmax(dim=-1)
    return logits, temperatures, top_ps, uniforms, suppressed


@pytest.mark.parametrize(("vocabulary", "cols"), [(1, 16), (3, 16), (300, 16), (1000, 256), (512, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_draws_what_the_reference_draws(vocabulary: int, cols: int, dtype: torch.dtype) -> None:
    logits, *rules, suppressed = asked(vocabulary, seed=1)
    places = suppressed if vocabulary > 3 else None
    found = sample(logits.to(dtype), *rules, places, Shape(cols, warps=4))
    assert torch.equal(found, reference.sample(logits.to(dtype), *rules, places))


def test_the_lowest_of_the_largest_and_all_that_are_as_likely() -> None:
    logits = torch.tensor([[0.0, 7.0, 7.0, 1.0, 7.0]]).expand(4, -1)
    rules = torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.full((4,), 0.1), torch.tensor([0.9, 0.1, 0.5, 0.9])
    assert sample(logits, *rules).tolist() == [1, 1, 2, 4]


def test_rows_may_lie_apart() -> None:
    logits, *rules, suppressed = asked(100, seed=2)
    wide = torch.full((ROWS, 130), 1e9)
    wide[:, :100] = logits
    assert torch.equal(sample(wide[:, :100], *rules, suppressed), reference.sample(logits, *rules, suppressed))


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_range_draw_the_first_and_the_last(uniform: float) -> None:
    logits = torch.full((1, 700), -float("inf"))
    logits[0, [77, 300, 611]] = 0.0
    ends = sample(logits, torch.ones(1), torch.ones(1), torch.tensor([uniform]))
    assert ends.tolist() == [77 if uniform == 0 else 611]


def test_a_vocabulary_too_long_for_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="65537"):
        sample(torch.zeros(1, 65537), *(torch.zeros(1) for _ in range(3)))
