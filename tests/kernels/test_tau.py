import pytest
import torch

from stoop_worker.kernels.tau import Heat, reference, scales, tau_parts, temper


def test_a_scale_is_tanh_of_the_parts_and_a_term_of_the_position() -> None:
    parts = torch.tensor([[[0.25, -1.0]], [[0.5, 0.5]]])
    alpha = torch.tensor([0.7])
    share = torch.sigmoid(0.7 * torch.tensor(10.0).log())
    found = scales(Heat(parts, alpha), torch.tensor([9]))
    torch.testing.assert_close(found, torch.tensor([[0.75, -0.5]]).tanh() + 0.5 + share)


def test_the_first_position_changes_nothing_by_itself() -> None:
    assert reference.position_term(torch.tensor([0]), torch.tensor([-3.0, 5.0]), rounded=False).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(("position", "rounded"), [(255, 256), (256, 256), (257, 256), (732, 732), (1000, 1000)])
def test_rounded_positions_over_256_fall_together(position: int, rounded: int) -> None:
    alpha = torch.tensor([0.5])
    found = reference.position_term(torch.tensor([position]), alpha, rounded=True)
    log = torch.tensor(float(rounded)).bfloat16().log()
    assert torch.equal(found, 1 + ((log * alpha.bfloat16()).sigmoid() - 0.5)[None])


def test_q_and_v_are_scaled_and_k_is_not() -> None:
    qkv = torch.arange(12.0)[None]  # two heads of two channels each
    found = temper(qkv, torch.tensor([[2.0, 3.0, 5.0, 7.0]]))
    assert found[0].tolist() == [0, 2, 6, 9, 4, 5, 6, 7, 40, 45, 70, 77]


@pytest.mark.parametrize("tanh_gelu", [False, True])
def test_the_argument_is_a_product_with_gelu_of_the_whole_row(tanh_gelu: bool) -> None:
    qkv, w = torch.randn(3, 12, dtype=torch.float64), torch.randn(4, 12, dtype=torch.float64)
    z = torch.nn.functional.gelu(qkv, approximate="tanh" if tanh_gelu else "none")
    torch.testing.assert_close(tau_parts(qkv, w, tanh_gelu=tanh_gelu).sum(0), z @ w.T)
