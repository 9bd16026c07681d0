"""The temperatures, keys and values of one prompt, layer by layer, computed without a cache.

T positions, C model dim, H heads, D head dim, N columns of q, k and v.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.engine.inputs import TokenInput
from stoop_worker.engine.request import Query
from stoop_worker.images import Crops
from stoop_worker.kernels.moe import route
from stoop_worker.kernels.paged_attention import prefix_mask
from stoop_worker.kernels.rope import rope, rotation
from stoop_worker.kernels.tau import scales, temper
from stoop_worker.models.blocks.layers import MLP, layer_norm, linear
from stoop_worker.models.moondream import text
from stoop_worker.models.moondream.encoder import Encoder
from stoop_worker.models.moondream.model import Moondream
from stoop_worker.models.moondream.moe import feed_forward
from stoop_worker.models.moondream.prompt import build_prompt
from stoop_worker.models.moondream.tau import heat_of
from stoop_worker.models.moondream.weights import MoE

__all__ = ["LayerStatistics", "Spread", "prompt_statistics"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The least, the mean and the largest of many values."""

    least: float
    mean: float
    most: float

    @classmethod
    def of(cls, values: Tensor) -> "Spread":
        """Measure a tensor."""
        values = values.float()
        return cls(*(round(float(value), 5) for value in (values.min(), values.mean(), values.max())))


@dataclass(frozen=True, slots=True)
class LayerStatistics:
    """One layer: the scales of the heads' queries and values (Moondream 3), and the lengths of keys and values.

    `largest` is the largest magnitude among keys and values: a cache in float8 clamps values over 448. `expert_tokens`
    has the number of positions that chose each expert, in a layer with experts.
    """

    layer: int
    tau_q: Spread | None
    tau_v: Spread | None
    key_length: Spread
    value_length: Spread
    largest: float
    expert_tokens: tuple[int, ...] | None = None


@torch.inference_mode()
def prompt_statistics(model: Moondream, question: str, image: Crops | None = None) -> list[LayerStatistics]:
    """Measure a question, about an image or about text alone."""
    inputs = build_prompt(
        Query(question), has_image=image is not None, ids=model.config.tokenizer, tokenizer=model.tokenizer
    )
    ids = [each.id for each in inputs if isinstance(each, TokenInput)]
    x_TC = _embedded(model, ids)
    prefix = 0
    if image is not None:
        prefix = model.config.text.prefix_attn
        x_TC = torch.cat((_embedded(model, [model.config.tokenizer.bos_id]), _image(model, image), x_TC))
    return list(_layers(model, x_TC, prefix))


def _embedded(model: Moondream, ids: Sequence[int]) -> Tensor:
    return text.embed(torch.tensor(ids, device=model.device), model.weights.text)


def _image(model: Moondream, image: Crops) -> Tensor:
    encoder = Encoder(model.weights.vision, model.config.vision, device=model.device, dtype=model.dtype)
    return encoder.encode([image], lambda: None)[0]


def _layers(model: Moondream, x_TC: Tensor, prefix: int) -> Iterator[LayerStatistics]:
    config = model.config.text
    positions_T = torch.arange(len(x_TC), device=x_TC.device)
    rotation_TF = rotation(positions_T, config.rotary_dim, config.rope_theta, dtype=x_TC.dtype)
    mask_TT = prefix_mask(len(x_TC), len(x_TC), prefix, x_TC.device)
    for layer, block in enumerate(model.weights.text.blocks):
        normed_TC = layer_norm(x_TC, block.ln)
        qkv_TN = linear(normed_TC, block.attn.qkv)
        heat = heat_of(qkv_TN, block.attn.tau)
        scales_TX = None if heat is None else scales(heat, positions_T)
        if scales_TX is not None:
            qkv_TN = temper(qkv_TN, scales_TX)
        q_HTD, k_HTD, v_HTD = qkv_TN.view(len(x_TC), 3, config.n_heads, -1).permute(1, 2, 0, 3)
        q_HTD, k_HTD = (rope(heads.transpose(0, 1), rotation_TF).transpose(0, 1) for heads in (q_HTD, k_HTD))
        yield replace(_measured(layer, scales_TX, k_HTD, v_HTD), expert_tokens=_expert_tokens(normed_TC, block.mlp))
        attended_HTD = functional.scaled_dot_product_attention(q_HTD, k_HTD, v_HTD, attn_mask=mask_TT)
        attended_TC = attended_HTD.transpose(0, 1).flatten(1)
        x_TC = x_TC + linear(attended_TC, block.attn.proj) + feed_forward(normed_TC, block.mlp)


def _expert_tokens(normed_TC: Tensor, weights: MLP | MoE) -> tuple[int, ...] | None:
    if isinstance(weights, MLP):
        return None
    chosen_TK = route(linear(normed_TC, weights.router), weights.chosen).experts_TK
    return tuple(chosen_TK.flatten().bincount(minlength=len(weights.up.weight_EOI)).tolist())


def _measured(layer: int, scales_TX: Tensor | None, k_HTD: Tensor, v_HTD: Tensor) -> LayerStatistics:
    tau_q, tau_v = (None, None) if scales_TX is None else map(Spread.of, scales_TX.chunk(2, dim=-1))
    return LayerStatistics(
        layer=layer,
        tau_q=tau_q,
        tau_v=tau_v,
        key_length=Spread.of(k_HTD.float().norm(dim=-1)),
        value_length=Spread.of(v_HTD.float().norm(dim=-1)),
        largest=round(float(torch.stack((k_HTD.abs().max(), v_HTD.abs().max())).max()), 5),
    )
