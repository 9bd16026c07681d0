"""Choosing tokens. B rows, V vocabulary."""

import torch
from torch import Tensor

__all__ = ["LEAST_TEMPERATURE", "sample", "top_p_filter"]

LEAST_TEMPERATURE = 1e-4
"""What is colder is greedy: the next likeliest token has no chance, and dividing by it would overflow a float32."""


def sample(logits_BV: Tensor, temperatures_B: Tensor, top_ps_B: Tensor, uniforms_B: Tensor) -> Tensor:
    """Choose one token a row; returns ids_B int64. A row depends on nothing but itself.

    A temperature under `LEAST_TEMPERATURE` takes the largest logit (the lowest id among equals). Otherwise the
    probabilities are softmax(logits / temperature), cut by `top_p_filter`; the token is where their cumulative sum,
    from the likeliest on, passes the row's uniform in [0, 1). Arithmetic is float32, float64 for float64 logits.
    """
    precise = torch.promote_types(logits_BV.dtype, torch.float32)
    greedy_B = temperatures_B < LEAST_TEMPERATURE
    # an infinite divisor would make NaN of a suppressed logit
    divisor_B = torch.where(greedy_B, 1, temperatures_B).to(precise).clamp(max=torch.finfo(precise).max)
    probabilities_BV = torch.softmax(logits_BV.to(precise) / divisor_B[:, None], dim=-1)
    sorted_BV, order_BV = torch.sort(probabilities_BV, dim=-1, descending=True, stable=True)
    cumulative_BV = _running_sum(top_p_filter(sorted_BV, top_ps_B.to(precise)))
    total_B = cumulative_BV[:, -1]
    # u * total may round up to total, where no entry would pass it
    target_B = torch.minimum(uniforms_B.to(precise) * total_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    rank_B1 = (cumulative_BV <= target_B[:, None]).sum(dim=-1, keepdim=True)
    return torch.where(greedy_B, logits_BV.argmax(dim=-1), order_BV.gather(1, rank_B1)[:, 0])


def top_p_filter(sorted_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Zero the tail of probabilities sorted from the largest down; what is left is not renormalised.

    An entry goes when the sum of those before it is over top_p, taken as (cumulative sum - itself): so the entry that
    crosses the threshold stays, and the first always does.
    """
    before_BV = _running_sum(sorted_BV) - sorted_BV
    kept_BV = before_BV <= top_ps_B[:, None]
    kept_BV[:, 0] = True
    return torch.where(kept_BV, sorted_BV, 0)


def _running_sum(x_BV: Tensor) -> Tensor:
    # CUDA sums a lone row by another algorithm, whose rounding may differ: a second row keeps it to the common one
    return torch.cat((x_BV, x_BV)).cumsum(dim=-1)[:1] if len(x_BV) == 1 else x_BV.cumsum(dim=-1)
