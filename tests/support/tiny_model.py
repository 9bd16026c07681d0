"""Small models in memory, with weights from a formula."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from deploy.demo_model.untrained import (
    TEXTS,
    formula_tensors,
    small_config,
    standin_tokenizer,
    with_templates,
    write_model,
)
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig, released
from stoop_worker.models.moondream.config_parts import MoEConfig
from stoop_worker.models.moondream.model import Moondream

__all__ = [
    "demo_config",
    "formula_weights",
    "standin_tokenizer",
    "tiny_config",
    "tiny_moondream",
    "tiny_moondream3_config",
    "tiny_tokenizer",
    "write_checkpoint",
]

_GOLDEN_VOCAB = 64  # too small for any tokenizer: such a model takes ids only


def tiny_config(*, vocab_size: int = 512, vision_layers: int = 2, max_context: int = 1024) -> ModelConfig:
    """Return tiny sizes; from 512 ids on, the templates are spelled by `tiny_tokenizer(vocab_size)`."""
    config = small_config(vocab_size=vocab_size, vision_layers=vision_layers, max_context=max_context)
    return config if vocab_size == _GOLDEN_VOCAB else with_templates(config, tiny_tokenizer(vocab_size))


def tiny_moondream3_config(*, vocab_size: int = _GOLDEN_VOCAB, vision_layers: int = 2) -> ModelConfig:
    """Return a tiny Moondream 3: four experts from its second layer on, of which two are chosen."""
    tiny, full = tiny_config(vocab_size=vocab_size, vision_layers=vision_layers), released("moondream3")
    moe = MoEConfig(num_experts=4, start_layer=1, experts_per_token=2, expert_inner_dim=64)
    return ModelConfig(
        text=replace(tiny.text, rope_theta=full.text.rope_theta, moe=moe, tau=full.text.tau),
        vision=tiny.vision,
        region=replace(tiny.region, inner_dim=None),
        tokenizer=replace(full.tokenizer, templates=tiny.tokenizer.templates),
    )


def demo_config() -> ModelConfig:
    """Return the config of the untrained demo model."""
    return tiny_config()


@lru_cache
def tiny_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """Return the stand-in tokenizer trained on the demo's texts."""
    return standin_tokenizer(TEXTS, vocab_size)


def formula_weights(config: ModelConfig) -> dict[str, Tensor]:
    """Return float32 weights by their names in a checkpoint, the same at every call."""
    return formula_tensors(config)


@lru_cache
def tiny_moondream(
    dtype: torch.dtype = torch.float32,
    *,
    vocab_size: int = 512,
    vision_layers: int = 2,
    max_context: int = 1024,
    device: str = "cpu",
) -> Moondream:
    """Return a tiny model in memory; the sizes 64 and 27 are those of the golden values."""
    config = tiny_config(vocab_size=vocab_size, vision_layers=vision_layers, max_context=max_context)
    tensors = {name: tensor.to(device, dtype) for name, tensor in formula_weights(config).items()}
    return Moondream.of(config, tensors, tiny_tokenizer(max(vocab_size, 512)), name="tiny")


def write_checkpoint(folder: Path, *, name: str = "tiny", dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write the model of `tiny_moondream()` to a folder, and return the folder."""
    config = tiny_config()
    tensors = {key: tensor.to(dtype) for key, tensor in formula_weights(config).items()}
    write_model(folder, config, tensors, tiny_tokenizer(), card={"name": name, "untrained": True})
    return folder
