import pytest
import torch

from stoop_worker.kernels.rotate_write import HeadNorms, Places, reference, rotation_table
from stoop_worker.kernels.rotate_write.kernel import rotate_write, rotate_write_gelu

THETA, PAGE = 10000.0, 4
POSITIONS, SLOTS = torch.tensor([3, 0, 40, 1]), torch.tensor([9, 0, -1, 6])
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize(("heads", "head_dim", "rotary"), [(2, 16, 8), (3, 16, 4), (1, 8, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_agrees_with_the_reference(heads: int, head_dim: int, rotary: int, dtype: torch.dtype) -> None:
    width, mlp = heads * head_dim, 2056
    rows = torch.randn(4, 3 * width + mlp).to(dtype)
    table = rotation_table(64, rotary, THETA, torch.device("cpu"))
    pools = [torch.full((2, 3, PAGE, heads, head_dim), 5.0, dtype=dtype) for _ in range(3)]
    outs = [torch.full((4, width + mlp), 7.0, dtype=dtype) for _ in range(2)]
    expected = reference.rotate_write_gelu(rows, Places(POSITIONS, table, SLOTS), pools[0], out_TM=outs[0])
    found = rotate_write_gelu(rows, Places(POSITIONS, table, SLOTS), pools[1], out_TM=outs[1])
    alone = rotate_write(rows[:, : 3 * width], Places(POSITIONS, table, SLOTS), pools[2])
    for one, other in ((found, expected), (pools[1], pools[0]), (outs[1], outs[0])):
        torch.testing.assert_close(one, other)
    assert torch.equal(alone, found) and torch.equal(pools[2], pools[1])


def interleaved_axes(frequencies: int) -> torch.Tensor:
    return (torch.arange(frequencies) % 3).int()


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("heads", "key_heads", "rotary", "dtype"),
    [
        (6, 2, 16, torch.float32),
        (6, 2, 16, torch.bfloat16),
        (3, 3, 16, torch.float16),
        (5, 1, 4, torch.bfloat16),
        (3, 1, 12, torch.float32),
    ],
)
def test_grouped_heads_norms_and_axes(
    heads: int, key_heads: int, rotary: int, normed: bool, axes: int, dtype: torch.dtype
) -> None:
    width = (heads + 2 * key_heads) * 16
    rows = torch.full((4, width + 5), torch.nan, dtype=dtype)
    rows[:, :width] = 3 * torch.randn(4, width)
    table = rotation_table(64, rotary, THETA, torch.device("cpu"))
    places = Places(POSITIONS, table, SLOTS)
    if axes == 3:
        positions = torch.stack((POSITIONS, POSITIONS.flip(0), POSITIONS + 9), dim=1)
        places = Places(positions, table, SLOTS, interleaved_axes(rotary // 2))
    norms = HeadNorms(torch.randn(16).to(dtype), torch.randn(16).to(dtype), 1e-6) if normed else None
    pools = [torch.full((2, 3, PAGE, key_heads, 16), torch.nan, dtype=dtype) for _ in range(2)]
    expected = reference.rotate_write(rows[:, :width], places, pools[0], norms=norms)
    found = rotate_write(rows[:, :width], places, pools[1], norms=norms)
    for one, other in ((found, expected), (pools[1], pools[0])):
        close = TOLERANCE[dtype]
        torch.testing.assert_close(one, other, rtol=close, atol=close, equal_nan=True)


def test_values_beyond_float8_are_clamped_to_its_range() -> None:
    # the interpreter rounds otherwise than torch: values that need none, and values out of range
    exact = torch.linspace(-448, 448, 4 * 96).to(torch.float8_e4m3fn).float().view(4, 96)
    qkv = torch.where(exact.abs() > 300, exact.sign() * 1000, exact)
    table = rotation_table(64, 8, THETA, torch.device("cpu"))
    pools = [torch.zeros(2, 3, PAGE, 2, 16, dtype=torch.float8_e4m3fn) for _ in range(2)]
    still = torch.zeros(4, dtype=torch.int64)
    reference.rotate_write(qkv, Places(still, table, SLOTS), pools[0])
    rotate_write(qkv, Places(still, table, SLOTS), pools[1])
    assert torch.equal(pools[1].float(), pools[0].float())


def test_no_rows_launch_no_kernel() -> None:
    pool = torch.zeros(2, 3, PAGE, 2, 16)
    table = rotation_table(64, 8, THETA, torch.device("cpu"))
    none = torch.zeros(0, dtype=torch.int64)
    assert rotate_write(torch.zeros(0, 96), Places(none, table, none), pool).shape == (0, 2, 16)
