"""The kernels of tau against their references."""

import pytest
import torch

from stoop_worker.kernels.rotate_write import Places, rotation_table
from stoop_worker.kernels.rotate_write import kernel as rotate
from stoop_worker.kernels.rotate_write import reference as plain
from stoop_worker.kernels.rotate_write.places import HeadNorms
from stoop_worker.kernels.tau import Heat, kernel, reference

# the interpreter's dot takes no bfloat16
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3}
POSITIONS, SLOTS = torch.tensor([3, 0, 40, 1]), torch.tensor([9, 0, -1, 6])
TABLE = rotation_table(64, 8, 10000.0, torch.device("cpu"))


@pytest.mark.parametrize("tanh_gelu", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("count", "width"), [(1, 96), (5, 1600), (70, 300)])
def test_parts_add_up_to_the_reference(count: int, width: int, dtype: torch.dtype, tanh_gelu: bool) -> None:
    whole = torch.full((count, width + 3), torch.nan, dtype=dtype)
    rows, w = whole[:, :width], (torch.randn(6, width) / width**0.5).to(dtype)
    rows.copy_(torch.randn(count, width))
    found = kernel.tau_parts(rows, w, tanh_gelu=tanh_gelu)
    assert found.dtype == torch.float32 and found.shape[1:] == (count, 6)
    expected = reference.tau_parts(rows.double(), w.double(), tanh_gelu=tanh_gelu)[0]
    torch.testing.assert_close(found.sum(0).double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_heads_are_scaled_while_they_are_rotated_and_written(heads: int, dtype: torch.dtype, rounded: bool) -> None:
    rows = torch.randn(4, 3 * heads * 16).to(dtype)
    heat = Heat(torch.randn(5, 4, 2 * heads), torch.randn(heads).to(dtype), rounded)
    places = Places(POSITIONS, TABLE, SLOTS, heat=heat)
    pools = [torch.full((2, 3, 4, heads, 16), torch.nan, dtype=dtype) for _ in range(2)]
    expected = plain.rotate_write(rows, places, pools[0])
    found = rotate.rotate_write(rows, places, pools[1])
    # a step in bfloat16 may fall to the other side
    close = 2e-2 if rounded else TOLERANCE[dtype]
    for one, other in ((found, expected), (pools[1], pools[0])):
        torch.testing.assert_close(one, other, rtol=close, atol=close, equal_nan=True)
    cold = rotate.rotate_write(rows, Places(POSITIONS, TABLE, SLOTS), pools[1])
    assert not torch.allclose(found, cold, atol=0.1)


def test_a_temperature_goes_without_norms() -> None:
    heat = Heat(torch.zeros(1, 4, 4), torch.zeros(2))
    norms = HeadNorms(torch.ones(16), torch.ones(16), 1e-6)
    with pytest.raises(ValueError, match="temperature"):
        rotate.rotate_write(
            torch.zeros(4, 96), Places(POSITIONS, TABLE, SLOTS, heat=heat), torch.zeros(2, 3, 4, 2, 16), norms=norms
        )
