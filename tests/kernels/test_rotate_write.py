import pytest
import torch
from torch.nn import functional

from worker.kernels.paged_attention import write_kv
from worker.kernels.rope import rope, rotation
from worker.kernels.rotate_write import rotate_and_write, rotate_write_gelu, rotation_table

HEADS, HEAD_DIM, ROTARY, THETA, PAGE = 2, 8, 4, 10000.0, 4
WIDTH, MLP = HEADS * HEAD_DIM, 12
POSITIONS, SLOTS = torch.tensor([3, 0, 40]), torch.tensor([9, 0, 6])
TABLE = rotation_table(64, ROTARY, THETA, torch.device("cpu"))


def empty_pool(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, 3, PAGE, HEADS, HEAD_DIM, dtype=dtype)


def test_it_is_rope_and_a_write_to_the_pool() -> None:
    qkv = torch.randn(3, 3 * WIDTH)
    q, k, v = qkv.view(3, 3, HEADS, HEAD_DIM).unbind(1)
    turn = rotation(POSITIONS, ROTARY, THETA, dtype=qkv.dtype)
    expected = empty_pool()
    write_kv(rope(k, turn), v, expected, SLOTS)
    pool = empty_pool()
    assert torch.equal(rotate_and_write(qkv, POSITIONS, TABLE, pool, SLOTS, heads=HEADS), rope(q, turn))
    assert torch.equal(pool, expected)


def test_a_row_without_a_slot_is_written_nowhere() -> None:
    qkv = torch.randn(3, 3 * WIDTH)
    pool = empty_pool()
    q = rotate_and_write(qkv, POSITIONS, TABLE, pool, torch.tensor([-1, 5, -1]), heads=HEADS)
    assert q.shape == (3, HEADS, HEAD_DIM)
    assert pool.flatten(1, 2).any(-1).any(-1).nonzero().tolist() == [[0, 5], [1, 5]]


def test_the_mlp_beside_it_goes_through_gelu_and_touches_no_other_column() -> None:
    rows = torch.randn(3, 3 * WIDTH + MLP)
    pool, alone = empty_pool(), empty_pool()
    out = torch.full((3, WIDTH + MLP), 7.0)
    q = rotate_write_gelu(rows, POSITIONS, TABLE, pool, SLOTS, out_TM=out)
    assert torch.equal(q, rotate_and_write(rows[:, : 3 * WIDTH], POSITIONS, TABLE, alone, SLOTS, heads=HEADS))
    assert torch.equal(pool, alone)
    torch.testing.assert_close(out[:, WIDTH:], functional.gelu(rows[:, 3 * WIDTH :], approximate="tanh"))
    assert (out[:, :WIDTH] == 7).all()


@pytest.mark.parametrize("value", [1000.0, -1000.0])
def test_a_float8_pool_takes_what_it_can_hold(value: float) -> None:
    pool = empty_pool(torch.float8_e4m3fn)
    qkv = torch.full((3, 3 * WIDTH), value)
    rotate_and_write(qkv, torch.zeros(3, dtype=torch.int64), TABLE, pool, SLOTS, heads=HEADS)
    assert pool[1].float().flatten(0, 1)[SLOTS].unique().tolist() == [448.0 if value > 0 else -448.0]
