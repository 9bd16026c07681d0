"""Trains the demo's embedder from scratch: an XLM-RoBERTa as bge-m3 is one, only smaller.

    python -m deploy.demo_embedding.train texts run --seconds 30

The cosine of two sentences learns to follow the share of features that their meanings have in common. The training
needs torch and numpy alone. `python -m deploy.demo_embedding.export texts run deploy/demo_embedding/model` turns the
result into a checkpoint.

B texts, T ids, C model dim, H heads, D head dim.
"""

import argparse
import json
import time
from collections.abc import Mapping
from math import cos, pi, sqrt
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear, normalize, scaled_dot_product_attention

__all__ = ["DIM", "FIRST_POSITION", "HEADS", "LAYERS", "POSITIONS", "embed", "main"]

DIM, HEADS, LAYERS, POSITIONS, FIRST_POSITION = 128, 2, 3, 130, 2
_WARM_UP = 100
_SHARPNESS = 0.05  # temperature of the cosines
_TARGET = 0.08  # temperature of the shared features
_PAD = 1


def first_tensors(vocabulary: int, seed: int = 0) -> dict[str, Tensor]:
    """Return float32 weights to start training from."""
    source = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = torch.ones(DIM), torch.zeros(DIM)

    def matrix(name: str, out: int, into: int) -> None:
        tensors[f"{name}.weight"] = torch.randn(out, into, generator=source) / sqrt(into)
        tensors[f"{name}.bias"] = torch.zeros(out)

    for name, rows in (("word", vocabulary), ("position", POSITIONS), ("token_type", 1)):
        tensors[f"embeddings.{name}_embeddings.weight"] = torch.randn(rows, DIM, generator=source) * 0.1
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            matrix(f"{prefix}.attention.self.{part}", DIM, DIM)
        matrix(f"{prefix}.attention.output.dense", DIM, DIM)
        norm(f"{prefix}.attention.output.LayerNorm")
        matrix(f"{prefix}.intermediate.dense", 4 * DIM, DIM)
        matrix(f"{prefix}.output.dense", DIM, 4 * DIM)
        norm(f"{prefix}.output.LayerNorm")
    return tensors


def embed(ids_BT: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return vectors of length 1, (B, C), of the first token of each text."""

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (DIM,), tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def matrix(x: Tensor, name: str) -> Tensor:
        return linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    count, width = ids_BT.shape
    read_B11T = (ids_BT != _PAD)[:, None, None]
    place = slice(FIRST_POSITION, FIRST_POSITION + width)
    x = tensors["embeddings.word_embeddings.weight"][ids_BT] + tensors["embeddings.position_embeddings.weight"][place]
    x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        q, k, v = (
            matrix(x, f"{prefix}.attention.self.{part}").view(count, width, HEADS, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = scaled_dot_product_attention(q, k, v, attn_mask=read_B11T).transpose(1, 2).flatten(2)
        x = norm(x + matrix(attended, f"{prefix}.attention.output.dense"), f"{prefix}.attention.output.LayerNorm")
        inner = gelu(matrix(x, f"{prefix}.intermediate.dense"))
        x = norm(x + matrix(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")
    return normalize(x[:, 0].float(), dim=-1)


class _Lessons:
    """Batches of two sentences each for some meanings; some sentences lose their capitals, full stop or a word."""

    def __init__(self, rows: list[tuple[list[str], list[list[int]], list[list[int]]]]) -> None:
        self._rows = rows
        names = sorted({name for features, _, _ in rows for name in features})
        numbers = {name: number for number, name in enumerate(names)}
        self._features_NF = torch.zeros(len(rows), len(names))
        for row, (features, _, _) in enumerate(rows):
            self._features_NF[row, [numbers[name] for name in features]] = 1.0

    def draw(self, random: Random, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ids of both sentences, (2 B, T), the shared features (B, B), and the rows."""
        rows = random.sample(range(len(self._rows)), min(count, len(self._rows)))
        texts = [random.choice(self._rows[row][random.choice((1, 1, 2))]) for _ in range(2) for row in rows]
        width = max(map(len, texts))
        ids = torch.tensor([[*text, *[_PAD] * (width - len(text))] for text in texts])
        found_BF = self._features_NF[rows]
        both = found_BF @ found_BF.T
        sizes = found_BF.sum(1)
        return ids, both / (sizes[:, None] + sizes - both), torch.tensor(rows)


def run(lessons: _Lessons, tensors: dict[str, Tensor], device: torch.device, arguments: argparse.Namespace) -> None:
    """Train until the time is over."""
    adam = torch.optim.AdamW(list(tensors.values()), betas=(0.9, 0.98), weight_decay=0.01)
    random, began, steps, share = Random(0), time.monotonic(), 0, 0.0
    while share < 1 and steps < (arguments.steps or steps + 1):
        ids, shared, _ = lessons.draw(random, arguments.batch)
        vectors = embed(ids.to(device), tensors)
        left, right = vectors.chunk(2)
        target = torch.softmax(shared.to(device) / _TARGET, dim=1)
        cosines = left @ right.T / _SHARPNESS
        loss = cross_entropy(cosines, target) + cross_entropy(cosines.T, target)
        adam.zero_grad()
        torch.autograd.backward(loss)
        for group in adam.param_groups:
            group["lr"] = arguments.rate * min(1.0, (steps + 1) / _WARM_UP) * (0.5 + 0.5 * cos(pi * min(1.0, share)))
        adam.step()
        steps += 1
        share = (time.monotonic() - began) / arguments.seconds
        if steps % arguments.report == 0:
            entry = {"step": steps, "share": round(share, 3), "loss": round(float(loss.detach()), 4)}
            print(json.dumps(entry), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = {name: tensor.detach().half().cpu() for name, tensor in tensors.items()}
    torch.save({"tensors": kept, "steps": steps}, arguments.out / "embedder.pt")


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(prog="deploy.demo_embedding.train", description="Train the demo's embedder.")
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--report", type=int, default=50)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    document = json.loads((arguments.texts / "texts.json").read_text(encoding="utf-8"))
    tensors = first_tensors(document["vocabulary"])
    placed = {name: tensor.to(device).requires_grad_() for name, tensor in tensors.items()}
    run(_Lessons(document["meanings"]), placed, device, arguments)


if __name__ == "__main__":
    main()
