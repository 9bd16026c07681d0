"""A model small enough for hundreds of schedules: a 5 x 5 patch grid, 96 positions, random float64 weights."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Aborted, Finished, Media, Output, Refused, Request
from stoop_worker.images import Crops, Image, cut
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import (
    Affixes,
    MoEConfig,
    RegionConfig,
    TauConfig,
    Templates,
    TextConfig,
    TokenizerConfig,
    VisionConfig,
)
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import Moondream
from stoop_worker.models.moondream.shapes import tensor_shapes
from tests.engine.audit import audit
from tests.support.tiny_model import standin_tokenizer

__all__ = [
    "BRIEF",
    "GROUNDED",
    "LIVELY",
    "MICRO",
    "MICRO3",
    "SILENT",
    "crops_of",
    "drain",
    "ending",
    "media_of",
    "micro_moondream",
    "micro_moondream3",
    "micro_tensors",
    "micro_tokenizer",
    "small_engine",
]

_DIM = 32

MICRO = ModelConfig(
    text=TextConfig(
        dim=_DIM, ff_dim=64, n_layers=2, vocab_size=512, max_context=96, n_heads=2, n_kv_heads=2, prefix_attn=26
    ),
    vision=VisionConfig(
        enc_dim=16,
        enc_patch_size=2,
        enc_n_layers=1,
        enc_ff_dim=32,
        enc_n_heads=2,
        proj_out_dim=_DIM,
        crop_size=10,
        max_crops=4,
        overlap_margin=1,
        proj_inner_dim=32,
    ),
    region=RegionConfig(
        dim=_DIM, coord_feat_dim=16, coord_out_dim=64, size_feat_dim=16, size_out_dim=128, inner_dim=32
    ),
    tokenizer=TokenizerConfig(
        templates=Templates(
            caption={"short": (1, 20, 2, 21, 3), "normal": (1, 20, 2, 22, 3)},
            query=Affixes((1, 23, 2), (3,)),
            detect=Affixes((1, 24, 25, 2), (3,)),
            point=Affixes((1, 26, 2), (3,)),
        )
    ),
)

MICRO3 = replace(
    MICRO,
    text=replace(MICRO.text, n_layers=3, rope_theta=1_500_000.0, moe=MoEConfig(4, 1, 2, 16), tau=TauConfig()),
    region=replace(MICRO.region, inner_dim=None),
    tokenizer=replace(
        MICRO.tokenizer,
        query_double_suffix=False,
        reasoning_after_suffix=False,
        answer_ends=True,
        stop_rule="pair_after_first",
    ),
)
"""A Moondream 3: four experts from the second layer on, of which two are chosen."""

Biases = tuple[tuple[int, float], ...]

# makes a random model end, ground and answer now and then
LIVELY = ((0, 3.5), (3, 3.5), (5, 4.5), (7, 3.5), (9, 3.5))
GROUNDED = ((0, 3.5), (3, 4.0), (5, 6.5), (7, 5.0), (9, 5.0))
BRIEF = ((0, 4.5), (3, 6.0))
SILENT = ((0, 7.0),)


@lru_cache
def micro_tokenizer() -> Tokenizer:
    """Return a tokenizer that knows a few words whole."""
    return standin_tokenizer(["What colour is the red circle?", "How many are there? This one.", "Why is it so?"], 512)


@lru_cache
def micro_moondream(biases: Biases = LIVELY, dtype: torch.dtype = torch.float64) -> Moondream:
    """Return the model with `biases` (token id, bias) added to its last layer."""
    return _made(MICRO, biases, dtype)


@lru_cache
def micro_moondream3(biases: Biases = LIVELY, dtype: torch.dtype = torch.float64) -> Moondream:
    """Return the same of Moondream 3's kind."""
    return _made(MICRO3, biases, dtype)


def micro_tensors(config: ModelConfig, biases: Biases = LIVELY) -> dict[str, torch.Tensor]:
    """Return the model's tensors by their names in a checkpoint."""
    random = torch.Generator().manual_seed(7)
    tensors = {name: _tensor(name, shape, random) for name, shape in tensor_shapes(config).items()}
    for token, bias in biases:
        tensors["text.lm_head.bias"][token] += bias
    return tensors


def _made(config: ModelConfig, biases: Biases, dtype: torch.dtype) -> Moondream:
    tensors = {name: tensor.to(dtype) for name, tensor in micro_tensors(config, biases).items()}
    return Moondream.of(config, tensors, micro_tokenizer(), name="micro")


def _tensor(name: str, shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    tensor = torch.randn(shape, generator=random, dtype=torch.float64)
    if len(shape) == 1 and ("ln" in name) and name.endswith("weight"):
        return 1 + 0.1 * tensor
    if name.endswith("bias"):
        return 0.1 * tensor
    return tensor if "wte" in name or "features" in name else 1.5 * tensor / shape[-1] ** 0.5


@lru_cache
def crops_of(number: int, height: int = 8, width: int = 8) -> Crops:
    """Return the crops of one of many different noisy images."""
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return cut(Image.of(pixels), MICRO.vision.geometry)


def media_of(image: Media | None) -> tuple[Media, ...]:
    """Return the media of a request about an image, or about text alone."""
    return () if image is None else (image,)


def small_engine(model: Moondream | None = None, **changes: object) -> Engine:
    """Return an engine on the micro model, 4 positions a page, `changes` made to its config."""
    config = EngineConfig(page_size=4, max_batch=4, token_budget=64)
    family = MoondreamFamily(model or micro_moondream())
    return Engine(family, replace(config, **changes))  # type: ignore[arg-type]


def drain(engine: Engine, requests: list[Request], most: int = 2000) -> dict[str, list[Output]]:
    """Run requests to their ends, at most `most` steps; return the outputs of each."""
    for request in requests:
        engine.submit(request)
    received: dict[str, list[Output]] = {request.id: [] for request in requests}
    for _ in range(most):
        if engine.idle:
            break
        for output in engine.step():
            received[output.id].append(output)
    assert engine.idle, "the engine does not come to an end"
    engine.check()
    audit(engine._scheduler.pool)
    return received


def ending(outputs: Mapping[str, list[Output]], request_id: str) -> Finished | Refused | Aborted:
    """Return the one last output of a request."""
    *before, last = outputs[request_id]
    assert isinstance(last, Finished | Refused | Aborted)
    assert not any(isinstance(output, Finished | Refused | Aborted) for output in before)
    return last
