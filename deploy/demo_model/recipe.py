"""The demo model before training: its sizes, its tokenizer and its initial weights."""

from collections.abc import Iterator
from dataclasses import replace
from math import cos, pi, sin, sqrt
from random import Random

import torch
from torch import Tensor

from deploy.demo_model.pictures.scenes import scene
from deploy.demo_model.pictures.speech import captions, labels, questions
from deploy.demo_model.untrained import small_config, standin_tokenizer, with_templates
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import RegionConfig, TextConfig, VisionConfig
from stoop_worker.models.moondream.shapes import tensor_shapes

__all__ = ["demo_config", "demo_tokenizer", "first_tensors", "smoke_config"]

_VOCABULARY = 576
_CORPUS = 1500  # scenes whose texts the tokenizer is trained on


def demo_tokenizer() -> Tokenizer:
    """Train the tokenizer on texts about scenes."""
    return standin_tokenizer(_texts(), _VOCABULARY)


def demo_config(tokenizer: Tokenizer) -> ModelConfig:
    """Return the sizes of the trained demo model: under 8 million parameters."""
    return with_templates(
        replace(
            small_config(vocab_size=_VOCABULARY),
            text=TextConfig(
                dim=256, ff_dim=1024, n_layers=5, vocab_size=_VOCABULARY, max_context=1280, n_heads=4, n_kv_heads=4
            ),
            vision=VisionConfig(
                enc_dim=192, enc_n_layers=4, enc_ff_dim=768, enc_n_heads=3, proj_out_dim=256, proj_inner_dim=768
            ),
            region=RegionConfig(dim=256, coord_feat_dim=64, size_feat_dim=128, inner_dim=256),
        ),
        tokenizer,
    )


def smoke_config(tokenizer: Tokenizer) -> ModelConfig:
    """Return sizes just large enough to run every part of the training."""
    return with_templates(
        replace(
            small_config(vocab_size=_VOCABULARY),
            text=TextConfig(
                dim=64, ff_dim=64, n_layers=1, vocab_size=_VOCABULARY, max_context=1280, n_heads=1, n_kv_heads=1
            ),
            vision=VisionConfig(
                enc_dim=32, enc_n_layers=1, enc_ff_dim=32, enc_n_heads=1, proj_out_dim=64, proj_inner_dim=32
            ),
            region=RegionConfig(dim=64, coord_feat_dim=16, size_feat_dim=16, inner_dim=32),
        ),
        tokenizer,
    )


def first_tensors(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Return float32 weights to start training from."""
    source = torch.Generator().manual_seed(seed)
    return {name: _first(name, shape, config, source) for name, shape in tensor_shapes(config).items()}


def _first(name: str, shape: tuple[int, ...], config: ModelConfig, source: torch.Generator) -> Tensor:
    if name == "vision.pos_emb":
        return 0.5 * _waves(config.vision.grid, config.vision.enc_dim)[None]
    if name.endswith("_features"):
        return _frequencies(shape, source)
    if name.endswith("bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
    if name == "text.wte":
        return torch.randn(shape, generator=source) * 0.3
    depth = config.vision.enc_n_layers if name.startswith("vision.") else config.text.n_layers
    # layers that write into a residual stream start small, and so do the classifiers
    quiet = sqrt(1 / (2 * depth)) if ".blocks." in name and name.endswith(("proj.weight", "fc2.weight")) else 1.0
    quiet = 0.2 if name.endswith(("lm_head.weight", "decoder.fc2.weight")) else quiet
    return torch.randn(shape, generator=source) * quiet / sqrt(shape[-1])


def _frequencies(shape: tuple[int, ...], source: torch.Generator) -> Tensor:
    """Return cycles per unit, from slow to fast; faster ones would exceed the precision of bfloat16 inputs."""
    inputs, count = shape
    spread = torch.logspace(-2, 4, count, base=2.0)
    if inputs == 1:
        return spread[None]
    angles = torch.rand(count, generator=source) * 2 * pi
    return torch.stack((spread * angles.cos(), spread * angles.sin()))


def _waves(grid: int, dim: int) -> Tensor:
    """Return a table (grid², dim) in which every row and column is distinct."""
    rates = [0.5 * 2 ** (6 * i * 4 / dim) for i in range(dim // 4)]
    line = [[wave(2 * pi * rate * at / grid / 4) for rate in rates for wave in (sin, cos)] for at in range(grid)]
    table = torch.tensor(line)
    width = table.shape[1]
    return torch.cat((table[:, None].expand(grid, grid, width), table[None].expand(grid, grid, width)), -1).flatten(
        0, 1
    )


def _texts() -> Iterator[str]:
    yield "describe query detect point short normal long I see no"
    for seed in range(_CORPUS):
        random = Random(seed)
        shown = scene(seed, many_crops=False)
        yield from captions(shown).values()
        yield from (text for question in questions(shown, random) for text in (question.text, question.answer))
        label = labels(shown, random)
        yield from (f"I see {label.text()}.", f"I see 2 {label.text(plural=True)}.")
