"""RMS norm and gated activations as compiled kernels, at the widths of real models."""

import pytest
import torch

from stoop_worker.kernels.rms_norm import add_rms_norm, rms_norm, rms_norm_add_rms_norm
from stoop_worker.kernels.rms_norm import reference as norm_reference
from stoop_worker.kernels.swiglu import geglu, swiglu
from stoop_worker.kernels.swiglu import reference as swiglu_reference

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EPSILON = 1e-6


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("rows", "width"), [(1, 2048), (64, 3072), (3000, 2560), (5, 128)])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_rms_norm(rows: int, width: int, count: int, dtype: torch.dtype) -> None:
    x, weight = torch.randn(rows, width, device="cuda").to(dtype), torch.randn(width, device="cuda").to(dtype)
    added = tuple(torch.randn(rows, width, device="cuda").to(dtype) for _ in range(count))
    expected_sum, expected = norm_reference.add_rms_norm(x, added, weight, epsilon=EPSILON)
    if count:
        summed, found = add_rms_norm(x, added, weight, epsilon=EPSILON)
        assert torch.equal(summed, expected_sum)
    else:
        found = rms_norm(x, weight, epsilon=EPSILON)
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("rows", "width"), [(1, 768), (64, 768), (8192, 768), (5, 128)])
def test_norm_sum_and_norm(rows: int, width: int, dtype: torch.dtype) -> None:
    x, added = (torch.randn(rows, width, device="cuda").to(dtype) for _ in range(2))
    first, second = (torch.randn(width, device="cuda") for _ in range(2))
    summed, found = rms_norm_add_rms_norm(x, added, (first, second), epsilon=EPSILON)
    expected_sum, expected = norm_reference.rms_norm_add_rms_norm(x, added, (first, second), epsilon=EPSILON)
    torch.testing.assert_close(summed, expected_sum, rtol=CLOSE[dtype], atol=CLOSE[dtype])
    torch.testing.assert_close(found, expected, rtol=2 * CLOSE[dtype], atol=2 * CLOSE[dtype])


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1152), (8192, 1152), (5, 100)])
def test_geglu(rows: int, columns: int, dtype: torch.dtype) -> None:
    wide = torch.full((rows, 2 * columns + 8), torch.nan, dtype=dtype, device="cuda")
    wide[:, :-8] = (4 * torch.randn(rows, 2 * columns, device="cuda")).to(dtype)
    expected = swiglu_reference.geglu(wide[:, :-8])
    torch.testing.assert_close(geglu(wide[:, :-8]), expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("rows", "columns"), [(1, 8192), (64, 9728), (3000, 8192), (5, 100)])
def test_swiglu(rows: int, columns: int, dtype: torch.dtype) -> None:
    wide = torch.full((rows, 2 * columns + 8), torch.nan, dtype=dtype, device="cuda")
    wide[:, :-8] = (4 * torch.randn(rows, 2 * columns, device="cuda")).to(dtype)
    found = swiglu(wide[:, :-8])
    expected = swiglu_reference.swiglu(wide[:, :-8])
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_a_captured_chain_of_both_follows_its_input() -> None:
    x, weight = torch.randn(4, 2048, device="cuda").bfloat16(), torch.randn(2048, device="cuda").bfloat16()

    def chain() -> torch.Tensor:
        summed, normed = add_rms_norm(x, (x,), weight, epsilon=EPSILON)
        return rms_norm(swiglu(torch.cat((summed, normed), dim=1)), weight, epsilon=EPSILON)

    chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain()
    for _ in range(5):
        x.normal_()
        graph.replay()
        assert torch.equal(found, chain())
