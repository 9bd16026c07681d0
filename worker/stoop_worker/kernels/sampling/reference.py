"""Chooses tokens. B rows, R rows drawn at random, V vocabulary, N masks, W words of 32 bits of a mask."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from stoop_worker.kernels.sampling.limits import Limits

__all__ = ["LEAST_TEMPERATURE", "mask_of", "sample", "top_k_filter", "top_p_filter"]

LEAST_TEMPERATURE = 1e-4
"""Lower temperatures are greedy: the second likeliest token has no chance, and the division would overflow float32."""

_FIRST_SORTED = (128, 2048)


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    limits: Limits | None = None,
) -> Tensor:
    """Choose one token for each row, independently of the other rows; returns ids_B int64.

    A temperature under `LEAST_TEMPERATURE` takes the largest logit (the lowest id among equals). Otherwise the
    probabilities are softmax(logits / temperature), cut by `top_p_filter`; the token is where their cumulative sum, in
    the order of ids, passes the row's uniform in [0, 1). Probabilities are float32, or float64 for float64 logits;
    their sums are float64. Ids that `limits` excludes have probability 0 throughout, so top_p is a share of the ids
    that top_k keeps.
    """
    if limits is not None:
        logits_BV = _limited(logits_BV, limits)
    ids_B = logits_BV.argmax(dim=-1)
    rows_R = (temperatures_B >= LEAST_TEMPERATURE).nonzero()[:, 0]
    # sorting a vocabulary takes longer than everything else here
    if len(rows_R):
        ids_B[rows_R] = _draw(logits_BV[rows_R], temperatures_B[rows_R], top_ps_B[rows_R], uniforms_B[rows_R])
    return ids_B


def top_p_filter(probabilities_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Zero the tokens that top_p excludes; the probabilities of the others stay as they are.

    In order of falling probability, a token stays if the probabilities before it sum up to at most top_p. Tokens
    exactly as likely as the last one that stays also stay. The likeliest always stays, and with a top_p of 1 all tokens
    do.
    """
    cut_R = (top_ps_B < 1).nonzero()[:, 0]
    if not len(cut_R):
        return probabilities_BV
    least_B1 = torch.zeros_like(probabilities_BV[:, :1])
    least_B1[cut_R] = _least_likely(probabilities_BV[cut_R], top_ps_B[cut_R])
    return torch.where(probabilities_BV >= least_B1, probabilities_BV, 0)


def top_k_filter(logits_BV: Tensor, top_ks_B: Tensor) -> Tensor:
    """Set logits below the k-th largest to minus infinity; a k of 0 leaves all unchanged."""
    limited_B1 = (top_ks_B > 0)[:, None]
    most = min(int(top_ks_B.max()), logits_BV.shape[1])
    if most <= 0:
        return logits_BV
    last_B1 = (top_ks_B.clamp(min=1, max=most) - 1)[:, None].long()
    least_B1 = logits_BV.topk(most, dim=-1).values.gather(1, last_B1)
    return logits_BV.masked_fill(limited_B1 & (logits_BV < least_B1), float("-inf"))


def mask_of(ids: Iterable[int], vocabulary: int) -> Tensor:
    """Return mask_W (int32) of the ids that may be chosen, as a row of `Limits.masks_NW`."""
    bits = torch.zeros(-(-vocabulary // 32) * 32, dtype=torch.int64)
    bits[torch.tensor(list(ids), dtype=torch.int64)] = 1
    return (bits.view(-1, 32) << torch.arange(32)).sum(dim=1).to(torch.int32)


def _least_likely(probabilities_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Return the probability of the last token that each row's top_p keeps, (B, 1). Every top_p is below 1.

    Sorting a whole vocabulary takes longer than a step of a small model, and few tokens hold most of the sum. So the
    CPU sorts only the likeliest if every row is cut among them.
    """
    vocabulary = probabilities_BV.shape[1]
    few = [count for count in _FIRST_SORTED if count < vocabulary and probabilities_BV.device.type == "cpu"]
    for count in few:
        sorted_BK = probabilities_BV.topk(count, dim=-1).values
        kept_BK = _is_kept(sorted_BK, top_ps_B)
        if not kept_BK[:, -1].any():
            return _last_kept(sorted_BK, kept_BK)
    sorted_BV = _descending(probabilities_BV)
    return _last_kept(sorted_BV, _is_kept(sorted_BV, top_ps_B))


def _descending(x_BV: Tensor) -> Tensor:
    if x_BV.device.type != "cpu":
        return x_BV.sort(dim=-1, descending=True).values
    # torch also returns the order, which takes its CPU sort many times as long as numpy's
    return torch.from_numpy(np.sort(x_BV.numpy(), axis=-1)).flip(-1)


def _is_kept(sorted_BK: Tensor, top_ps_B: Tensor) -> Tensor:
    return _running_sum(sorted_BK) - sorted_BK <= top_ps_B[:, None]


def _last_kept(sorted_BK: Tensor, kept_BK: Tensor) -> Tensor:
    return sorted_BK.gather(1, kept_BK.sum(dim=-1, keepdim=True).clamp(min=1) - 1)


def _limited(logits_BV: Tensor, limits: Limits) -> Tensor:
    ids_V = torch.arange(logits_BV.shape[1], device=logits_BV.device)
    if limits.suppressed_B2 is not None:
        suppressed_BV = (ids_V == limits.suppressed_B2[:, :, None]).any(dim=1)
        logits_BV = logits_BV.masked_fill(suppressed_BV, float("-inf"))
    if limits.masks_NW is not None and limits.mask_rows_B is not None:
        words_BW = limits.masks_NW[limits.mask_rows_B.clamp(min=0).long()]
        allowed_BV = (words_BW[:, ids_V // 32] >> (ids_V % 32)) & 1 == 1
        logits_BV = logits_BV.masked_fill(~allowed_BV & (limits.mask_rows_B >= 0)[:, None], float("-inf"))
    return logits_BV if limits.top_ks_B is None else top_k_filter(logits_BV, limits.top_ks_B)


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
    # CUDA sums a lone row with another algorithm, which may round differently; a second row selects the common one
    return torch.cat((x_BV, x_BV)).cumsum(dim=-1)[:1] if len(x_BV) == 1 else x_BV.cumsum(dim=-1)
