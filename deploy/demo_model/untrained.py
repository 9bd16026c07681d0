"""Writes an untrained demo model: a Moondream 2 of four megabytes whose weights come from a formula.

    python deploy/demo_model/untrained.py [folder]

It runs every skill through all of Stoop, fast, on any computer. Its answers mean nothing.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import (
    Affixes,
    RegionConfig,
    Templates,
    TextConfig,
    TokenizerConfig,
    VisionConfig,
)
from stoop_worker.models.moondream.shapes import tensor_shapes

__all__ = ["TEXTS", "formula_tensors", "small_config", "standin_tokenizer", "with_templates", "write_model"]

FOLDER = Path(__file__).parent / "model"
CONTROL_TOKENS = ("<|endoftext|>", *(f"<|md_reserved_{i}|>" for i in range(20)))
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "white", "black", "grey")
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
TEXTS = (
    "describe query detect point short normal long",
    *(f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES),
    *(f"How many {colour} {shape}s are there?" for colour in COLOURS for shape in SHAPES),
    *(f"What colour is the {shape}? It is {colour}." for colour in COLOURS for shape in SHAPES),
    *(f"There are {count} shapes in the picture." for count in ("no", "one", "two", "three", "four", "five")),
    "The picture shows a shape above, below, left of, right of another shape on a plain background. Yes. No.",
)
README = """# Demo model (untrained)

A Moondream 2 with tiny sizes. Its weights come from a fixed formula: it was never trained, and its answers mean
nothing. It exists so that the whole service runs in seconds on any computer.

Written by `python deploy/demo_model/untrained.py`.
"""


def formula_tensors(config: ModelConfig) -> dict[str, Tensor]:
    """Return float32 weights that depend only on each tensor's name and shape."""
    return {name: _formula(name, shape) for name, shape in tensor_shapes(config).items()}


def _formula(name: str, shape: tuple[int, ...]) -> Tensor:
    phase = crc32(name.encode()) % 1000 / 1000
    steps = np.arange(1, int(np.prod(shape)) + 1, dtype=np.float64)
    waves = np.sin(12.9898 * steps + 78.233 * phase) * 43758.5453
    values = (waves - np.floor(waves) - 0.5) * 2  # uniform over [-1, 1)
    table = name in ("text.wte", "vision.pos_emb") or name.endswith(("_features", "tau.alpha"))
    if name.endswith("bias"):
        values = 0.1 * values
    elif any(part in name for part in (".ln.", ".ln1.", ".ln2.", "post_ln.")):
        values = 1 + 0.1 * values
    elif not table:
        values = values * np.sqrt(3 / shape[-1])
    return torch.from_numpy(values.reshape(shape)).float()


def small_config(*, vocab_size: int = 512, vision_layers: int = 2, max_context: int = 1024) -> ModelConfig:
    """Return a Moondream 2 with the released crop sizes and prompt rules, and everything else tiny.

    The templates fit no particular tokenizer: see `with_templates`.
    """
    return ModelConfig(
        text=TextConfig(
            dim=128, ff_dim=256, n_layers=3, vocab_size=vocab_size, max_context=max_context, n_heads=2, n_kv_heads=2
        ),
        vision=VisionConfig(
            enc_dim=144, enc_n_layers=vision_layers, enc_ff_dim=288, enc_n_heads=2, proj_out_dim=128, proj_inner_dim=256
        ),
        region=RegionConfig(dim=128, coord_feat_dim=16, size_feat_dim=32, inner_dim=256),
        tokenizer=TokenizerConfig(
            templates=Templates(
                caption={"short": (1, 32, 2, 12, 3), "normal": (1, 32, 2, 13, 3), "long": (1, 32, 2, 14, 3)},
                query=Affixes((1, 15, 2), (3,)),
                detect=Affixes((1, 35, 7, 2), (3,)),
                point=Affixes((1, 25, 2), (3,)),
            )
        ),
    )


def standin_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer with the released one's control tokens: ids 0 to 20, then bytes."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend.to_str())


def with_templates(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """Return the config with the released prompt templates spelled by another tokenizer."""

    def framed(word: str) -> tuple[int, ...]:
        return (1, *tokenizer.tokenize(word), 2)

    answer = (config.tokenizer.answer_id,)
    templates = Templates(
        caption={
            length: (*framed("describe"), *tokenizer.tokenize(length), *answer)
            for length in ("short", "normal", "long")
        },
        query=Affixes(framed("query"), answer),
        detect=Affixes(framed("detect"), answer),
        point=Affixes(framed("point"), answer),
    )
    return replace(config, tokenizer=replace(config.tokenizer, templates=templates))


def write_model(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    *,
    card: Mapping[str, object],
) -> None:
    """Write a model folder: config.json (with the card under "stoop"), model.safetensors, tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"model_type": config.model_type, "stoop": dict(card), **config.document()}
    (folder / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.document(), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def main(folder: Path = FOLDER) -> None:
    """Write the untrained demo model."""
    config = small_config()
    tokenizer = standin_tokenizer(TEXTS, config.text.vocab_size)
    config = with_templates(config, tokenizer)
    tensors = {name: tensor.bfloat16() for name, tensor in formula_tensors(config).items()}
    write_model(folder, config, tensors, tokenizer, card={"name": "demo-untrained", "untrained": True})
    (folder / "README.md").write_text(README, encoding="utf-8")
    print(f"wrote {folder}: {(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
