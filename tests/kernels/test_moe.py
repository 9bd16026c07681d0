import pytest
import torch
from torch.nn import functional

from stoop_worker.kernels.moe import ExpertLinear, Routing, mixture, route


def test_the_largest_logits_are_chosen_and_weighed_among_themselves() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 1.0]], dtype=torch.float64)
    routing = route(logits, 2)
    assert routing.experts_TK.tolist() == [[1, 3]]
    torch.testing.assert_close(routing.weights_TK[0], torch.tensor([2.0, 1.0], dtype=torch.float64).softmax(0))


def test_equal_logits_go_to_the_lowest_experts() -> None:
    assert route(torch.ones(1, 16), 4).experts_TK.tolist() == [[0, 1, 2, 3]]


def test_weights_are_softmax_over_all_renormalised_over_the_chosen() -> None:
    logits = torch.randn(5, 8, dtype=torch.float64)
    routing = route(logits, 3)
    of_all = logits.softmax(-1).gather(1, routing.experts_TK.long())
    torch.testing.assert_close(routing.weights_TK, of_all / of_all.sum(-1, keepdim=True))


def test_a_mixture_is_the_weighted_sum_of_gated_mlps() -> None:
    x = torch.randn(3, 6, dtype=torch.float64)
    up, down = torch.randn(4, 10, 6, dtype=torch.float64), torch.randn(4, 6, 5, dtype=torch.float64)
    routing = Routing(torch.tensor([[3, 0], [1, 3], [0, 2]], dtype=torch.int32), torch.rand(3, 2, dtype=torch.float64))
    found = mixture(x, routing, ExpertLinear(up), ExpertLinear(down))
    for token in range(3):
        expected = torch.zeros(6, dtype=torch.float64)
        for expert, weight in zip(routing.experts_TK[token].tolist(), routing.weights_TK[token], strict=True):
            u = up[expert] @ x[token]
            expected += weight * (down[expert] @ (functional.gelu(u[:5]) * (u[5:] + 1)))
        torch.testing.assert_close(found[token], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float8_weights_count_as_their_value_times_their_row_s_scale(dtype: torch.dtype) -> None:
    x, scales = torch.randn(3, 16).to(dtype), torch.rand(2, 16) + 0.5
    weight = torch.randn(2, 16, 16).to(torch.float8_e4m3fn)
    plain = (weight.float() * scales[..., None]).to(dtype)
    routing = route(torch.randn(3, 2).to(dtype), 1)
    down, plain_down = torch.randn(2, 16, 8).to(torch.float8_e4m3fn), None
    plain_down = (down.float() * scales[..., None]).to(dtype)
    found = mixture(x, routing, ExpertLinear(weight, scales), ExpertLinear(down, scales))
    assert found.dtype == dtype
    torch.testing.assert_close(found, mixture(x, routing, ExpertLinear(plain), ExpertLinear(plain_down)))
