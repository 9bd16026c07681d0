"""Choosing tokens. B rows, R rows drawn by chance, V vocabulary."""

import torch
from torch import Tensor

__all__ = ["LEAST_TEMPERATURE", "sample", "top_p_filter"]

LEAST_TEMPERATURE = 1e-4
"""What is colder is greedy: the next likeliest token has no chance, and dividing by it would overflow a float32."""


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    suppressed_B2: Tensor | None = None,
) -> Tensor:
    """Choose one token a row; returns ids_B int64. A row depends on nothing but itself.

    A temperature under `LEAST_TEMPERATURE` takes the largest logit (the lowest id among equals). Otherwise the
    probabilities are softmax(logits / temperature), cut by `top_p_filter`; the token is where their cumulative sum, in
    the order of ids, passes the row's uniform in [0, 1). Probabilities are float32, float64 for float64 logits;
    their sums are float64. `suppressed_B2` int32 are ids that a row may not choose; -1 is none.
    """
    if suppressed_B2 is not None:
        logits_BV = _suppress(logits_BV, suppressed_B2)
    ids_B = logits_BV.argmax(dim=-1)
    rows_R = (temperatures_B >= LEAST_TEMPERATURE).nonzero()[:, 0]
    # a sort of a vocabulary takes longer than all else here
    if len(rows_R):
        ids_B[rows_R] = _draw(logits_BV[rows_R], temperatures_B[rows_R], top_ps_B[rows_R], uniforms_B[rows_R])
    return ids_B


def top_p_filter(probabilities_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Zero what is less likely than the token with which the likeliest together pass top_p; the rest stays as it is.

    That token stays, and so does what is exactly as likely. From the likeliest down, a token passes top_p when the sum
    of those before it is not over it; the first always stays, and with a top_p of 1 all do.
    """
    sorted_BV = probabilities_BV.sort(dim=-1, descending=True).values
    before_BV = _running_sum(sorted_BV) - sorted_BV
    last_B1 = (before_BV <= top_ps_B[:, None]).sum(dim=-1, keepdim=True).clamp(min=1) - 1
    least_B1 = torch.where(top_ps_B[:, None] >= 1, 0, sorted_BV.gather(1, last_B1))
    return torch.where(probabilities_BV >= least_B1, probabilities_BV, 0)


def _suppress(logits_BV: Tensor, suppressed_B2: Tensor) -> Tensor:
    ids_V = torch.arange(logits_BV.shape[1], device=logits_BV.device)
    return logits_BV.masked_fill((ids_V == suppressed_B2[:, :, None]).any(dim=1), float("-inf"))


def _draw(logits_RV: Tensor, temperatures_R: Tensor, top_ps_R: Tensor, uniforms_R: Tensor) -> Tensor:
    precise = torch.promote_types(logits_RV.dtype, torch.float32)
    # an infinite divisor would make NaN of a suppressed logit
    divisor_R = temperatures_R.to(precise).clamp(max=torch.finfo(precise).max)
    probabilities_RV = torch.softmax(logits_RV.to(precise) / divisor_R[:, None], dim=-1)
    cumulative_RV = _running_sum(top_p_filter(probabilities_RV, top_ps_R))
    total_R = cumulative_RV[:, -1]
    # u * total may round up to total, where no entry would pass it
    target_R = torch.minimum(uniforms_R.double() * total_R, torch.nextafter(total_R, torch.zeros_like(total_R)))
    return (cumulative_RV <= target_R[:, None]).sum(dim=-1)


def _running_sum(x_BV: Tensor) -> Tensor:
    x_BV = x_BV.double()
    # CUDA sums a lone row by another algorithm, whose rounding may differ: a second row keeps it to the common one
    return torch.cat((x_BV, x_BV)).cumsum(dim=-1)[:1] if len(x_BV) == 1 else x_BV.cumsum(dim=-1)
