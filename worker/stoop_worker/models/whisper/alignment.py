"""The place in a window of each id: a second pass over the text, and the attention of some heads.

T ids, S states, C model dim, H heads, D head dim, A alignment heads, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, pad, scaled_dot_product_attention

from stoop_worker.models.blocks.layers import layer_norm, linear
from stoop_worker.models.whisper.decoder import logits
from stoop_worker.models.whisper.dtw import shortest_path
from stoop_worker.models.whisper.model import Whisper
from stoop_worker.models.whisper.vocabulary import STEP
from stoop_worker.models.whisper.weights import DecoderBlock

__all__ = ["Alignment", "align"]

_MEDIAN = 7  # states, around each


@dataclass(frozen=True, slots=True)
class Alignment:
    """The seconds at which each id of a text begins and the text ends, and each id's probability."""

    times: tuple[float, ...]
    probabilities: tuple[float, ...]


@torch.inference_mode()
def align(states_SC: Tensor, before: Sequence[int], text: Sequence[int], model: Whisper, *, heard: int) -> Alignment:
    """Align the ids of a `text`, which come after the ids `before`, with the first `heard` states of their window.

    The later states are of the silence that fills up the window.
    """
    end = model.vocabulary.end
    ids_T = torch.tensor([*before, *text, end], device=states_SC.device)
    hidden_TC, attention_ATS = _run(ids_T, states_SC, model)
    # the row before each id of the text decides it
    rows = slice(len(before) - 1, len(before) - 1 + len(text))
    shares_TV = logits(hidden_TC[rows], model.weights)[:, :end].softmax(dim=-1)
    shares_T = shares_TV.gather(1, ids_T[len(before) : -1, None])[:, 0]
    matrix_TS = _evened(attention_ATS[:, :, :heard])[len(before) - 1 : -1]
    return Alignment(_times(matrix_TS.double().cpu().numpy()), tuple(shares_T.tolist()))


def _times(matrix_TS: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Return the time of the first state on the path at each id."""
    ids, states = shortest_path(-matrix_TS)
    begins = np.diff(ids, prepend=-1) > 0
    return tuple((states[begins] * STEP).round(2).tolist())


def _evened(attention_ATS: Tensor) -> Tensor:
    """Return the mean of the heads' attention, (T, S).

    Each state's attention is normalised over all ids, and smoothed by a median over the states around it.
    """
    shares_ATS = attention_ATS.float().softmax(dim=-1)
    spread_A1S, mean_A1S = torch.std_mean(shares_ATS, dim=1, keepdim=True, correction=0)
    scores_ATS = (shares_ATS - mean_A1S) / spread_A1S
    half = _MEDIAN // 2
    if scores_ATS.shape[2] > half:
        padded_ATS = pad(scores_ATS, (half, half), mode="reflect")
        scores_ATS = padded_ATS.unfold(2, _MEDIAN, 1).median(dim=-1).values
    return scores_ATS.mean(dim=0)


def _run(ids_T: Tensor, states_SC: Tensor, model: Whisper) -> tuple[Tensor, Tensor]:
    """Return hidden_TC, and the products of queries and keys of the alignment heads, (A, T, S)."""
    weights, config = model.weights, model.config
    x_TC = embedding(ids_T, weights.tokens) + weights.positions[: len(ids_T)]
    chosen: list[Tensor] = []
    for layer, block in enumerate(weights.decoder):
        heads = [head for at, head in model.generation.alignment_heads if at == layer]
        x_TC, products_HTS = _block(x_TC, states_SC, block, config.heads)
        chosen += [products_HTS[head] for head in heads]
    return x_TC, torch.stack(chosen)


def _block(x_TC: Tensor, states_SC: Tensor, block: DecoderBlock, heads: int) -> tuple[Tensor, Tensor]:
    own, cross = block.own, block.cross
    q_HTD, k_HTD, v_HTD = _heads(linear(layer_norm(x_TC, own.norm), own.qkv), heads, parts=3)
    attended_HTD = scaled_dot_product_attention(q_HTD, k_HTD, v_HTD, is_causal=True)
    x_TC = x_TC + linear(attended_HTD.transpose(0, 1).flatten(1), own.out)
    (q_HTD,) = _heads(linear(layer_norm(x_TC, cross.norm), cross.q), heads, parts=1)
    k_HSD, v_HSD = _heads(linear(states_SC, cross.kv), heads, parts=2)
    products_HTS = q_HTD @ k_HSD.transpose(1, 2) * q_HTD.shape[2] ** -0.5
    attended_HTD = products_HTS.softmax(dim=-1) @ v_HSD
    x_TC = x_TC + linear(attended_HTD.transpose(0, 1).flatten(1), cross.out)
    return x_TC + linear(gelu(linear(layer_norm(x_TC, own.mlp_norm), own.fc1)), own.fc2), products_HTS


def _heads(x_TC: Tensor, heads: int, *, parts: int) -> tuple[Tensor, ...]:
    return x_TC.view(len(x_TC), parts, heads, -1).permute(1, 2, 0, 3).unbind(0)
