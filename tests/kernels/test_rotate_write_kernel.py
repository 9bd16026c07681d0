import pytest
import torch

from worker.kernels.rotate_write import reference, rotation_table
from worker.kernels.rotate_write.kernel import rotate_and_write, rotate_write_gelu

THETA, PAGE = 10000.0, 4
POSITIONS, SLOTS = torch.tensor([3, 0, 40, 1]), torch.tensor([9, 0, -1, 6])


@pytest.mark.parametrize(("heads", "head_dim", "rotary"), [(2, 16, 8), (3, 16, 4), (1, 8, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_agrees_with_the_reference(heads: int, head_dim: int, rotary: int, dtype: torch.dtype) -> None:
    width, mlp = heads * head_dim, 2056
    rows = torch.randn(4, 3 * width + mlp).to(dtype)
    table = rotation_table(64, rotary, THETA, torch.device("cpu"))
    pools = [torch.full((2, 3, PAGE, heads, head_dim), 5.0, dtype=dtype) for _ in range(3)]
    outs = [torch.full((4, width + mlp), 7.0, dtype=dtype) for _ in range(2)]
    expected = reference.rotate_write_gelu(rows, POSITIONS, table, pools[0], SLOTS, out_TM=outs[0])
    found = rotate_write_gelu(rows, POSITIONS, table, pools[1], SLOTS, out_TM=outs[1])
    alone = rotate_and_write(rows[:, : 3 * width], POSITIONS, table, pools[2], SLOTS, heads=heads)
    for one, other in ((found, expected), (pools[1], pools[0]), (outs[1], outs[0])):
        torch.testing.assert_close(one, other)
    assert torch.equal(alone, found) and torch.equal(pools[2], pools[1])


def test_a_float8_pool_takes_what_it_can_hold() -> None:
    # the interpreter rounds otherwise than torch: values that need none, and values out of range
    exact = torch.linspace(-448, 448, 4 * 96).to(torch.float8_e4m3fn).float().view(4, 96)
    qkv = torch.where(exact.abs() > 300, exact.sign() * 1000, exact)
    table = rotation_table(64, 8, THETA, torch.device("cpu"))
    pools = [torch.zeros(2, 3, PAGE, 2, 16, dtype=torch.float8_e4m3fn) for _ in range(2)]
    still = torch.zeros(4, dtype=torch.int64)
    reference.rotate_and_write(qkv, still, table, pools[0], SLOTS, heads=2)
    rotate_and_write(qkv, still, table, pools[1], SLOTS, heads=2)
    assert torch.equal(pools[1].float(), pools[0].float())


def test_no_rows_are_no_launch() -> None:
    pool = torch.zeros(2, 3, PAGE, 2, 16)
    table = rotation_table(64, 8, THETA, torch.device("cpu"))
    none = torch.zeros(0, dtype=torch.int64)
    assert rotate_and_write(torch.zeros(0, 96), none, table, pool, none, heads=2).shape == (0, 2, 16)
