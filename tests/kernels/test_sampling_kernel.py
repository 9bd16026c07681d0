from collections.abc import Callable

import pytest
import torch

from stoop_worker.kernels.sampling import Limits, mask_of, reference
from stoop_worker.kernels.sampling.kernel import Shape, sample
from stoop_worker.kernels.sampling.wide import sample as sample_wide
from stoop_worker.kernels.sampling.wide_search import WideShape

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


def limits_of(vocabulary: int, suppressed: torch.Tensor, seed: int) -> Limits:
    """Return limits of every kind: some rows with a top_k, some with a mask, some with neither."""
    random = torch.Generator().manual_seed(seed)
    masks = torch.randint(-(2**31), 2**31, (3, -(-vocabulary // 32) + 1), generator=random).int()
    masks[2] = mask_of(range(5, 9), vocabulary + 32)
    return Limits(
        suppressed_B2=suppressed,
        top_ks_B=torch.tensor([0, 1, 2, 7, 40, vocabulary, 2 * vocabulary, 0])
        .int()
        .repeat(ROWS // 8)[: len(suppressed)],
        masks_NW=masks,
        mask_rows_B=torch.tensor([-1, 0, 1, 2, -1]).int().repeat(ROWS // 5)[: len(suppressed)],
    )


@pytest.mark.parametrize(
    ("vocabulary", "cols", "dtype"),
    [
        (1, 16, torch.float32),
        (3, 16, torch.bfloat16),
        (300, 16, torch.bfloat16),
        (1000, 256, torch.float32),
        (512, 32, torch.bfloat16),
    ],
)
def test_it_draws_the_same_ids_as_the_reference(vocabulary: int, cols: int, dtype: torch.dtype) -> None:
    logits, *rules, suppressed = asked(vocabulary, seed=1)
    limits = Limits(suppressed) if vocabulary > 3 else None
    found = sample(logits.to(dtype), *rules, limits, Shape(cols, warps=4))
    assert torch.equal(found, reference.sample(logits.to(dtype), *rules, limits))


def test_the_lowest_of_the_largest_and_all_that_are_as_likely() -> None:
    logits = torch.tensor([[0.0, 7.0, 7.0, 1.0, 7.0]]).expand(4, -1)
    rules = torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.full((4,), 0.1), torch.tensor([0.9, 0.1, 0.5, 0.9])
    assert sample(logits, *rules).tolist() == [1, 1, 2, 4]


def test_rows_may_be_strided() -> None:
    logits, *rules, suppressed = asked(100, seed=2)
    wide = torch.full((ROWS, 130), 1e9)
    wide[:, :100] = logits
    limits = Limits(suppressed)
    assert torch.equal(sample(wide[:, :100], *rules, limits), reference.sample(logits, *rules, limits))


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_range_draw_the_first_and_the_last(uniform: float) -> None:
    logits = torch.full((1, 700), -float("inf"))
    logits[0, [77, 300, 611]] = 0.0
    ends = sample(logits, torch.ones(1), torch.ones(1), torch.tensor([uniform]))
    assert ends.tolist() == [77 if uniform == 0 else 611]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(300, torch.float32), (1000, torch.bfloat16), (300, torch.float16)])
def test_limits_of_every_kind(vocabulary: int, dtype: torch.dtype) -> None:
    logits, *rules, suppressed = asked(vocabulary, seed=3)
    limits = limits_of(vocabulary, suppressed, seed=4)
    found = sample(logits.to(dtype), *rules, limits, Shape(64, warps=4))
    assert torch.equal(found, reference.sample(logits.to(dtype), *rules, limits))


@pytest.mark.parametrize(
    ("kinds", "dtype", "count"),
    [
        ("all", torch.bfloat16, 8),  # 8 rows have every temperature, top_p, top_k and mask
        ("all", torch.float32, 5),
        ("all", torch.float16, 5),
        ("suppressed", torch.bfloat16, 5),
        ("none", torch.bfloat16, 8),
    ],
)
def test_a_row_of_several_chunks(kinds: str, dtype: torch.dtype, count: int) -> None:
    logits, *rules, suppressed = asked(300, seed=5)
    suppressed = suppressed[:count]
    every = limits_of(300, suppressed, seed=6)
    limits = {"none": None, "suppressed": Limits(suppressed), "all": every}[kinds]
    wide = torch.full((ROWS, 330), 1e4)
    wide[:, :300] = logits
    rows, rules = wide.to(dtype)[:count, :300], [rule[:count] for rule in rules]
    # with eight rows a program takes two of the three chunks of a row, with five rows one
    found = sample_wide(rows, *rules, limits, WideShape(128, 64, programs=15))
    assert torch.equal(found, reference.sample(rows, *rules, limits))


def test_equal_logits_may_be_in_several_chunks() -> None:
    logits = torch.full((4, 200), -1.0)
    logits[:, [70, 71, 190]] = 7.0
    rules = torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.full((4,), 0.1), torch.tensor([0.9, 0.1, 0.5, 0.9])
    for limits in (None, Limits(top_ks_B=torch.tensor([1, 1, 2, 1]).int())):
        assert sample_wide(logits, *rules, limits, WideShape(64, 64)).tolist() == [70, 70, 71, 190]


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_range_of_chunks(uniform: float) -> None:
    logits = torch.full((1, 700), -float("inf"))
    logits[0, [77, 300, 611]] = 0.0
    ends = sample_wide(logits, torch.ones(1), torch.ones(1), torch.tensor([uniform]), None, WideShape(128, 64))
    assert ends.tolist() == [77 if uniform == 0 else 611]


def test_a_row_of_a_real_vocabulary() -> None:
    random = torch.Generator().manual_seed(7)
    logits = (3 * torch.randn(3, 151_936, generator=random)).bfloat16()
    rules = torch.tensor([0.0, 0.7, 1.2]), torch.tensor([1.0, 0.8, 1.0]), torch.tensor([0.5, 0.3, 0.9])
    limits = Limits(top_ks_B=torch.tensor([0, 20, 0]).int())
    assert torch.equal(sample_wide(logits, *rules, limits), reference.sample(logits, *rules, limits))


@pytest.mark.parametrize("launch", [sample, sample_wide])
def test_no_rows_launch_no_kernel(launch: Callable[..., torch.Tensor]) -> None:
    none = torch.zeros(0)
    assert launch(torch.zeros(0, 300), none, none, none).shape == (0,)


@pytest.mark.parametrize("launch", [sample, sample_wide])
def test_masks_come_with_the_rows_that_have_them(launch: Callable[..., torch.Tensor]) -> None:
    masks = torch.zeros(1, 10, dtype=torch.int32)
    with pytest.raises(ValueError, match="together"):
        launch(torch.zeros(1, 300), *(torch.zeros(1) for _ in range(3)), Limits(masks_NW=masks))


def test_a_vocabulary_too_long_for_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="65537"):
        sample(torch.zeros(1, 65537), *(torch.zeros(1) for _ in range(3)))
