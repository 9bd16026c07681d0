"""Moondream 3's text and region model in plain code, token by token, from the formulas alone.

It shares nothing with the product but the names of the tensors. x and hidden are (tokens, dim).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

__all__ = ["PlainMoondream3"]


@dataclass
class PlainMoondream3:
    tensors: Mapping[str, Tensor]
    layers: int
    heads: int
    first_mixed: int
    chosen: int
    theta: float = 1_500_000.0
    tau_gelu: str = "none"
    rounded_positions: bool = False

    def hidden(self, x: Tensor, prefix: int = 0) -> Tensor:
        for layer in range(self.layers):
            name = f"text.blocks.{layer}"
            normed = self.norm(x, f"{name}.ln")
            x = x + self.attention(normed, f"{name}.attn", prefix) + self.feed_forward(normed, layer)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        return self.linear(self.norm(hidden, "text.post_ln"), "text.lm_head")

    def coordinate_bin(self, hidden: Tensor) -> int:
        return int(self.linear(self.norm(hidden, "region.ln"), "region.coord_decoder").argmax())

    def size_bins(self, hidden: Tensor) -> list[int]:
        logits = self.linear(self.norm(hidden, "region.ln"), "region.size_decoder")
        return [int(half.argmax()) for half in logits.chunk(2)]

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return layer_norm(x, weight.shape, weight, bias, 1e-5)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def attention(self, normed: Tensor, name: str, prefix: int) -> Tensor:
        qkv = self.linear(normed, f"{name}.qkv")
        q, k, v = (part.view(len(normed), self.heads, -1) for part in qkv.chunk(3, dim=1))
        of_q, of_v = self.temperatures(qkv, f"{name}.tau")
        q, k, v = self.rotated(q * of_q[:, :, None]), self.rotated(k), v * of_v[:, :, None]
        out = torch.empty_like(q)
        for row in range(len(normed)):
            seen = prefix if row < prefix else row + 1
            for head in range(self.heads):
                scores = k[:seen, head] @ q[row, head] / q.shape[-1] ** 0.5
                out[row, head] = scores.softmax(0) @ v[:seen, head]
        return self.linear(out.flatten(1), f"{name}.proj")

    def temperatures(self, qkv: Tensor, name: str) -> tuple[Tensor, Tensor]:
        z = gelu(qkv, approximate=self.tau_gelu)
        position = self.position_term(len(qkv), name)
        of_q, of_v = (torch.tanh(z @ self.tensors[f"{name}.w{which}"].T) for which in "qv")
        return of_q + position, of_v + position

    def position_term(self, count: int, name: str) -> Tensor:
        alpha = self.tensors[f"{name}.alpha"]
        rounding = torch.bfloat16 if self.rounded_positions else alpha.dtype
        logs = (torch.arange(count).to(rounding) + 1).log()
        return (1 + (torch.sigmoid(alpha.to(rounding) * logs[:, None]) - 0.5)).to(alpha.dtype)

    def rotated(self, x: Tensor) -> Tensor:
        """Rotate the first half of each head's channels: channel i with channel i + a quarter."""
        quarter = x.shape[-1] // 4
        frequencies = self.theta ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
        angles = torch.arange(len(x), dtype=torch.float64)[:, None] * frequencies
        turn = torch.polar(torch.ones_like(angles), angles)[:, None]
        pairs = torch.complex(x[..., :quarter].double(), x[..., quarter : 2 * quarter].double()) * turn
        return torch.cat((pairs.real.to(x.dtype), pairs.imag.to(x.dtype), x[..., 2 * quarter :]), dim=-1)

    def feed_forward(self, normed: Tensor, layer: int) -> Tensor:
        name = f"text.blocks.{layer}.mlp"
        if layer < self.first_mixed:
            return self.linear(gelu(self.linear(normed, f"{name}.fc1"), approximate="tanh"), f"{name}.fc2")
        return torch.stack([self.mixture(row, name) for row in normed])

    def mixture(self, row: Tensor, name: str) -> Tensor:
        out = torch.zeros_like(row)
        for expert, weight in self.route(row, name):
            a, g = (self.tensors[f"{name}.fc1.weight"][expert] @ row).chunk(2)
            out += weight * (self.tensors[f"{name}.fc2.weight"][expert] @ (gelu(a) * (g + 1)))
        return out

    def route(self, row: Tensor, name: str) -> list[tuple[int, float]]:
        logits = self.linear(row, f"{name}.router").tolist()
        best = sorted(range(len(logits)), key=lambda expert: (-logits[expert], expert))[: self.chosen]
        powers = [2.718281828459045 ** (logits[expert] - logits[best[0]]) for expert in best]
        return [(expert, power / sum(powers)) for expert, power in zip(best, powers, strict=True)]
