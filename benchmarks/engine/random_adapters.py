"""Writes random LoRA adapters: of all linear layers of Moondream 2, or of the MLPs and experts of Moondream 3.

Their corrections are a thousandth of what they correct. So a run with adapters reads the same experts as one without,
and the difference is the time of the corrections. Large random ones would choose more experts in each step.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from stoop_worker.models.moondream.adapters.files import shape_at
from stoop_worker.models.moondream.config_parts import TextConfig

__all__ = ["adapter_names", "write_adapters"]

_SHARE = 1e-3  # of a layer's output


def adapter_names(count: int) -> list[str]:
    """Return the ids of `count` adapters."""
    return [f"adapter-{number}" for number in range(count)]


def write_adapters(folder: Path, text: TextConfig, *, count: int, rank: int) -> None:
    """Write `count` adapters in bfloat16; each expert has its share of the rank."""
    for seed, name in enumerate(adapter_names(count)):
        random = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for stem, halves, layer, place in _places(text):
            *experts, out, width = shape_at((layer, place), text)
            share = max(1, rank // text.moe.experts_per_token) if experts and text.moe else rank
            for half, shape, size in zip(halves, ((share, width), (out, share)), (1.0, _SHARE), strict=True):
                drawn = torch.randn(*experts, *shape, generator=random, dtype=torch.bfloat16)
                tensors[stem + half] = drawn * (size / shape[-1] ** 0.5)
        save_file(tensors, folder / f"{name}.safetensors")


def _places(text: TextConfig) -> Iterator[tuple[str, str, int, str]]:
    """Return the name of each pair's tensors without the half's letter, both letters, the layer and the place in it."""
    for layer in range(text.n_layers):
        if text.moe is None:
            for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"):
                yield f"text.blocks.{layer}.{name}.", "AB", layer, name.split(".")[1]
            continue
        dense = layer < text.moe.start_layer
        stem = f"dense.{layer}" if dense else f"moe.{layer - text.moe.start_layer}"
        for way, plain in (("up", "fc1"), ("down", "fc2")):
            yield f"{stem}.{way}_", "ab", layer, plain if dense else way
