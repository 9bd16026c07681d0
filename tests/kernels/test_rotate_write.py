import pytest
import torch
from torch.nn import functional

from stoop_worker.kernels.paged_attention import write_kv
from stoop_worker.kernels.rope import rope, rotation
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotate_write, rotate_write_gelu, rotation_table

HEADS, HEAD_DIM, ROTARY, THETA, PAGE = 2, 8, 4, 10000.0, 4
WIDTH, MLP = HEADS * HEAD_DIM, 12
POSITIONS, SLOTS = torch.tensor([3, 0, 40]), torch.tensor([9, 0, 6])
TABLE = rotation_table(64, ROTARY, THETA, torch.device("cpu"))
PLACES = Places(POSITIONS, TABLE, SLOTS)


def empty_pool(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, 3, PAGE, HEADS, HEAD_DIM, dtype=dtype)


def test_it_is_rope_and_a_write_to_the_pool() -> None:
    qkv = torch.randn(3, 3 * WIDTH)
    q, k, v = qkv.view(3, 3, HEADS, HEAD_DIM).unbind(1)
    turn = rotation(POSITIONS, ROTARY, THETA, dtype=qkv.dtype)
    expected = empty_pool()
    write_kv(rope(k, turn), v, expected, SLOTS)
    pool = empty_pool()
    assert torch.equal(rotate_write(qkv, PLACES, pool), rope(q, turn))
    assert torch.equal(pool, expected)


def test_a_row_without_a_slot_is_written_nowhere() -> None:
    qkv = torch.randn(3, 3 * WIDTH)
    pool = empty_pool()
    q = rotate_write(qkv, Places(POSITIONS, TABLE, torch.tensor([-1, 5, -1])), pool)
    assert q.shape == (3, HEADS, HEAD_DIM)
    assert pool.flatten(1, 2).any(-1).any(-1).nonzero().tolist() == [[0, 5], [1, 5]]


def test_the_mlp_beside_it_goes_through_gelu_and_touches_no_other_column() -> None:
    rows = torch.randn(3, 3 * WIDTH + MLP)
    pool, alone = empty_pool(), empty_pool()
    out = torch.full((3, WIDTH + MLP), 7.0)
    q = rotate_write_gelu(rows, PLACES, pool, out_TM=out)
    assert torch.equal(q, rotate_write(rows[:, : 3 * WIDTH], PLACES, alone))
    assert torch.equal(pool, alone)
    torch.testing.assert_close(out[:, WIDTH:], functional.gelu(rows[:, 3 * WIDTH :], approximate="tanh"))
    assert (out[:, :WIDTH] == 7).all()


@pytest.mark.parametrize("value", [1000.0, -1000.0])
def test_values_beyond_float8_are_clamped_to_its_range(value: float) -> None:
    pool = empty_pool(torch.float8_e4m3fn)
    qkv = torch.full((3, 3 * WIDTH), value)
    rotate_write(qkv, Places(torch.zeros(3, dtype=torch.int64), TABLE, SLOTS), pool)
    assert pool[1].float().flatten(0, 1)[SLOTS].unique().tolist() == [448.0 if value > 0 else -448.0]


def test_fewer_key_heads_than_query_heads() -> None:
    q, k, v = torch.randn(3, 6, HEAD_DIM), torch.randn(3, HEADS, HEAD_DIM), torch.randn(3, HEADS, HEAD_DIM)
    turn = rotation(POSITIONS, ROTARY, THETA, dtype=q.dtype)
    expected, pool = empty_pool(), empty_pool()
    write_kv(rope(k, turn), v, expected, SLOTS)
    assert torch.equal(rotate_write(torch.cat((q, k, v), dim=1).flatten(1), PLACES, pool), rope(q, turn))
    assert torch.equal(pool, expected)


@pytest.mark.parametrize("columns", [2 * WIDTH, 2 * WIDTH + HEAD_DIM, 3 * WIDTH + 3])
def test_rows_that_hold_no_whole_groups_of_heads_are_refused(columns: int) -> None:
    with pytest.raises(ValueError, match=f"rows of {columns} columns"):
        rotate_write(torch.randn(3, columns), PLACES, empty_pool())


def test_every_head_of_q_and_k_is_normalised_before_it_turns() -> None:
    q, k, v = torch.randn(3, 3, HEADS, HEAD_DIM, dtype=torch.float64).unbind(1)
    table = rotation_table(64, ROTARY, THETA, torch.device("cpu"), dtype=torch.float64)
    norms = HeadNorms(torch.randn(HEAD_DIM).double(), torch.randn(HEAD_DIM).double(), 0.5)
    turn = rotation(POSITIONS, ROTARY, THETA, dtype=torch.float64)
    normed_q = q / (q.pow(2).mean(-1, keepdim=True) + 0.5) ** 0.5 * norms.q_D
    normed_k = k / (k.pow(2).mean(-1, keepdim=True) + 0.5) ** 0.5 * norms.k_D
    expected, pool = empty_pool(torch.float64), empty_pool(torch.float64)
    write_kv(rope(normed_k, turn), v, expected, SLOTS)
    qkv = torch.cat((q, k, v), dim=1).flatten(1)
    found = rotate_write(qkv, Places(POSITIONS, table, SLOTS), pool, norms=norms)
    torch.testing.assert_close(found, rope(normed_q, turn))
    torch.testing.assert_close(pool, expected)


def test_each_frequency_turns_by_its_own_axis() -> None:
    qkv = torch.randn(3, 3 * WIDTH)
    positions = torch.tensor([[3, 50, 9], [0, 1, 2], [40, 7, 7]])
    by_axis = [rotate_write(qkv, Places(positions[:, axis], TABLE, SLOTS), empty_pool()) for axis in range(3)]
    found = rotate_write(qkv, Places(positions, TABLE, SLOTS, torch.tensor([2, 1]).int()), empty_pool())
    assert torch.equal(found[..., 0:2], by_axis[2][..., 0:2])
    assert torch.equal(found[..., 2:4], by_axis[1][..., 2:4])
