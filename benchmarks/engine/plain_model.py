"""Moondream in plain torch and float32, whole sequences at once and without a cache, as a reference for answers.

It shares only the weights with the engine. T positions, C model dim, H heads, D head dim, P patches, N crops.
"""

from math import isqrt, tau

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.images import Crops
from stoop_worker.kernels.moe import ExpertLinear
from stoop_worker.models.blocks.layers import MLP, LayerNorm, Linear
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.weights import Attention, MoE, Tau, Weights

__all__ = ["PlainModel"]


class PlainModel:
    """The model; it widens weights layer by layer, so that no second copy of them is needed."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.text.wte.device

    def tokens(self, ids: list[int]) -> Tensor:
        """Return the embeddings (T, C) of tokens."""
        return self.weights.text.wte[torch.tensor(ids, dtype=torch.int64, device=self.device)].float()

    def image(self, crops: Crops) -> Tensor:
        """Return the embeddings (P, C) of an image."""
        features_NPC = self._features(torch.from_numpy(crops.pixels).to(self.device))
        local_PC = _pooled(features_NPC[1:], crops, self.config.vision.overlap_margin)
        return _mlp(torch.cat((features_NPC[0], local_PC), dim=-1), self.weights.vision.proj_mlp)

    def coordinate(self, value: float) -> Tensor:
        """Return the embedding (1, C) of a coordinate."""
        weights = self.weights.region
        return _fourier([value], weights.coord_features, weights.coord_encoder)

    def size(self, width: float, height: float) -> Tensor:
        """Return the embedding (1, C) of a size."""
        weights = self.weights.region
        return _fourier([width, height], weights.size_features, weights.size_encoder)

    def hidden(self, x_TC: Tensor, prefix_len: int) -> Tensor:
        """Return hidden_TC: row i sees j if j <= i, or if both are below `prefix_len`."""
        text = self.config.text
        places = torch.arange(len(x_TC), device=self.device)
        mask_TT = (places[None] <= places[:, None]) | ((places[None] < prefix_len) & (places[:, None] < prefix_len))
        for block in self.weights.text.blocks:
            normed_TC = _norm(x_TC, block.ln)
            q_HTD, k_HTD, v_HTD = _heads(normed_TC, block.attn, text.n_heads)
            if block.attn.tau is not None:
                q_H, v_H = _temperatures(_linear(normed_TC, block.attn.qkv), block.attn.tau)
                q_HTD, v_HTD = q_HTD * q_H, v_HTD * v_H
            q_HTD, k_HTD = (_rotated(heads, text.rotary_dim, text.rope_theta) for heads in (q_HTD, k_HTD))
            attended_HTD = functional.scaled_dot_product_attention(q_HTD, k_HTD, v_HTD, attn_mask=mask_TT)
            x_TC = x_TC + _linear(_joined(attended_HTD), block.attn.proj)
            x_TC = x_TC + (_mlp(normed_TC, block.mlp) if isinstance(block.mlp, MLP) else _mixture(normed_TC, block.mlp))
        return x_TC

    def token_logits(self, hidden_TC: Tensor) -> Tensor:
        """Return logits (T, vocabulary)."""
        return _linear(_norm(hidden_TC, self.weights.text.post_ln), self.weights.text.lm_head)

    def coordinate_logits(self, hidden_TC: Tensor) -> Tensor:
        """Return logits (T, bins)."""
        return self._decoded(hidden_TC, self.weights.region.coord_decoder)

    def size_logits(self, hidden_TC: Tensor) -> Tensor:
        """Return logits (T, 2, bins) of width and height."""
        return self._decoded(hidden_TC, self.weights.region.size_decoder).view(len(hidden_TC), 2, -1)

    def _decoded(self, hidden_TC: Tensor, decoder: MLP | Linear) -> Tensor:
        for norm in self.weights.region.norms:
            hidden_TC = _norm(hidden_TC, norm)
        return _mlp(hidden_TC, decoder) if isinstance(decoder, MLP) else _linear(hidden_TC, decoder)

    def _features(self, pixels_NHWC: Tensor) -> Tensor:
        vision, weights = self.config.vision, self.weights.vision
        side, grid = vision.enc_patch_size, vision.grid
        patches = pixels_NHWC.reshape(-1, grid, side, grid, side, 3).permute(0, 1, 3, 5, 2, 4)
        patches_NPK = patches.flatten(3).flatten(1, 2).float() / 127.5 - 1
        x_NPC = _linear(patches_NPK, weights.patch_emb) + weights.pos_emb.float()
        for block in weights.blocks:
            q_NHPD, k_NHPD, v_NHPD = _heads(_norm(x_NPC, block.ln1), block.attn, vision.enc_n_heads)
            attended_NHPD = functional.scaled_dot_product_attention(q_NHPD, k_NHPD, v_NHPD)
            x_NPC = x_NPC + _linear(_joined(attended_NHPD), block.attn.proj)
            x_NPC = x_NPC + _mlp(_norm(x_NPC, block.ln2), block.mlp)
        return _norm(x_NPC, weights.post_ln)


def _linear(x_TC: Tensor, weights: object) -> Tensor:
    assert isinstance(weights, Linear), "the plain model needs the weights from before quantisation"
    return functional.linear(x_TC, weights.weight.float(), weights.bias.float())


def _norm(x_TC: Tensor, weights: LayerNorm) -> Tensor:
    return functional.layer_norm(x_TC, x_TC.shape[-1:], weights.weight.float(), weights.bias.float(), eps=1e-5)


def _mlp(x_TC: Tensor, weights: MLP) -> Tensor:
    return _linear(functional.gelu(_linear(x_TC, weights.fc1), approximate="tanh"), weights.fc2)


def _mixture(x_TC: Tensor, weights: MoE) -> Tensor:
    """Return the weighted sum of the chosen experts, one expert at a time."""
    best, experts = _linear(x_TC, weights.router).topk(weights.chosen, dim=-1)
    shares = best.softmax(dim=-1)
    out = torch.zeros_like(x_TC)
    for expert in range(len(weights.up.weight_EOI)):
        rows, ranks = (experts == expert).nonzero(as_tuple=True)
        a, g = (x_TC[rows] @ _expert(weights.up, expert).T).chunk(2, dim=-1)
        found = (functional.gelu(a) * (g + 1)) @ _expert(weights.down, expert).T
        out.index_add_(0, rows, found * shares[rows, ranks, None])
    return out


def _expert(weights: ExpertLinear, expert: int) -> Tensor:
    weight = weights.weight_EOI[expert].float()
    return weight if weights.scales_EO is None else weight * weights.scales_EO[expert, :, None]


def _temperatures(qkv_TN: Tensor, weights: Tau) -> tuple[Tensor, Tensor]:
    """Return the scales of q and of v, (heads, T, 1) each."""
    t_TX = torch.tanh(functional.gelu(qkv_TN) @ weights.w.float().T)
    logs_T = torch.arange(1, len(qkv_TN) + 1, device=qkv_TN.device).log()
    term_TH = 0.5 + torch.sigmoid(logs_T[:, None] * weights.alpha.float())
    q_TH, v_TH = (t_TH + term_TH for t_TH in t_TX.chunk(2, dim=-1))
    return q_TH.T[..., None], v_TH.T[..., None]


def _heads(x_TC: Tensor, weights: Attention, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    q_TC, k_TC, v_TC = _linear(x_TC, weights.qkv).chunk(3, dim=-1)
    q_HTD, k_HTD, v_HTD = (x.reshape(*x.shape[:-1], heads, -1).transpose(-3, -2) for x in (q_TC, k_TC, v_TC))
    return q_HTD, k_HTD, v_HTD


def _joined(attended_HTD: Tensor) -> Tensor:
    return attended_HTD.transpose(-3, -2).flatten(-2)


def _rotated(x_HTD: Tensor, rotary_dim: int, theta: float) -> Tensor:
    """Rotate the pairs (i, i + half) by their positions; pairs are not reordered, which changes no product."""
    half = rotary_dim // 2
    places_T = torch.arange(x_HTD.shape[-2], device=x_HTD.device, dtype=torch.float64)
    speeds_F = theta ** (-torch.arange(half, device=x_HTD.device, dtype=torch.float64) / half)
    angles_TF = (places_T[:, None] * speeds_F).to(x_HTD.dtype)
    cos_TF, sin_TF = angles_TF.cos(), angles_TF.sin()
    one, two, rest = x_HTD[..., :half], x_HTD[..., half:rotary_dim], x_HTD[..., rotary_dim:]
    return torch.cat((one * cos_TF - two * sin_TF, one * sin_TF + two * cos_TF, rest), dim=-1)


def _pooled(features_NPC: Tensor, crops: Crops, margin: int) -> Tensor:
    """Lay the local crops' inner patches side by side, and average them down to one crop's grid."""
    grid = isqrt(features_NPC.shape[1])
    tiles = features_NPC.view(len(features_NPC), grid, grid, -1)
    rows, cols = crops.tiling.rows, crops.tiling.cols
    spans = [
        np.s_[0 if place == 0 else margin : grid if place == count - 1 else grid - margin]
        for count in (rows, cols)
        for place in range(count)
    ]
    down, across = spans[:rows], spans[rows:]
    bands = [
        torch.cat([tiles[row * cols + col][down[row], across[col]] for col in range(cols)], dim=1)
        for row in range(rows)
    ]
    stitched_CYX = torch.cat(bands).permute(2, 0, 1)
    return functional.adaptive_avg_pool2d(stitched_CYX, grid).flatten(1).T


def _fourier(values: list[float], frequencies: Tensor, encoder: Linear) -> Tensor:
    phases = tau * torch.tensor([values], device=frequencies.device) @ frequencies.float()
    return _linear(torch.cat((phases.cos(), phases.sin()), dim=-1), encoder)
