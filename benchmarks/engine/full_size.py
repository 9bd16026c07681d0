"""Makes models with random weights for the benchmarks: Moondream 2 and 3 at full size, and small ones for tests.

    python -m benchmarks.engine.full_size /dev/shm/moondream2-random     # a folder that a worker loads

Weights are drawn on the device that runs them, so they differ between devices. Every answer has the requested
length and consists of words of one token each, so that its text identifies the chosen tokens.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Final

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig, released
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
from stoop_worker.models.moondream.model import Moondream, load
from stoop_worker.models.moondream.shapes import tensor_shapes

__all__ = ["DTYPES", "SIZES", "open_model", "random_moondream", "spell", "word_ids", "word_tokenizer", "write_folder"]

DTYPES: Final = {"bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp32": torch.float32, "float32": torch.float32}

_CONTROL = ("<|endoftext|>", *(f"<|md_reserved_{number}|>" for number in range(20)))
_WORDS = len(_CONTROL) + 256  # the first id of a word, after control tokens and bytes
_NEVER = -1e4  # a bias that keeps a token from ever being chosen
# Attention is so sharp that only few of the 730 positions matter, so that a wrong one changes the answers; if it were
# sharper, the rounding of bfloat16 would change them too.
_ATTENTION_GAIN = sqrt(3)

_TINY = ModelConfig(
    text=TextConfig(
        dim=64, ff_dim=128, n_layers=2, vocab_size=512, max_context=512, n_heads=2, n_kv_heads=2, prefix_attn=17
    ),
    vision=VisionConfig(
        enc_dim=32,
        enc_n_layers=1,
        enc_ff_dim=64,
        enc_n_heads=2,
        proj_out_dim=64,
        crop_size=56,
        max_crops=4,
        overlap_margin=1,
        proj_inner_dim=64,
    ),
    region=RegionConfig(dim=64, coord_feat_dim=16, coord_out_dim=64, size_feat_dim=16, size_out_dim=128, inner_dim=64),
    tokenizer=TokenizerConfig(
        templates=Templates(
            caption={"short": (1, 300, 2, 310, 3), "normal": (1, 300, 2, 311, 3), "long": (1, 300, 2, 312, 3)},
            query=Affixes((1, 301, 2), (3,)),
            detect=Affixes((1, 302, 303, 2), (3,)),
            point=Affixes((1, 304, 2), (3,)),
        )
    ),
)

_FULL3 = released("moondream3")

SIZES: Final[Mapping[str, ModelConfig]] = {
    "full": ModelConfig(),
    "tiny": _TINY,
    "full3": replace(_FULL3, text=replace(_FULL3.text, max_context=4096)),
    "tiny3": replace(
        _TINY,
        text=replace(_TINY.text, n_layers=3, rope_theta=1.5e6, moe=MoEConfig(8, 1, 2, 32), tau=TauConfig()),
        region=replace(_TINY.region, inner_dim=None),
        tokenizer=replace(_FULL3.tokenizer, templates=_TINY.tokenizer.templates),
    ),
}
"""Moondream 2 as released, and the same shape with tiny sizes; then the same of Moondream 3.

With "-fp8" behind the name of a Moondream 3, its experts are in float8.
"""

_FP8 = "-fp8"


def open_model(name: str, *, device: str, dtype: torch.dtype, seed: int = 1) -> Moondream:
    """Return a random model of a size in `SIZES`, or load the folder of that name written by `write_folder`."""
    size = name.removesuffix(_FP8)
    if size in SIZES:
        return random_moondream(SIZES[size], device=device, dtype=dtype, seed=seed, fp8_experts=name != size)
    return load(name, device=device, dtype=dtype)


def random_moondream(
    config: ModelConfig, *, device: str, dtype: torch.dtype, seed: int, fp8_experts: bool = False
) -> Moondream:
    """Draw a model on the device; the same seed gives the same weights on the same kind of device."""
    tensors = random_tensors(config, device=device, dtype=dtype, seed=seed, fp8_experts=fp8_experts)
    return Moondream.of(config, tensors, word_tokenizer(config.text.vocab_size), name="random")


def random_tensors(
    config: ModelConfig, *, device: str, dtype: torch.dtype, seed: int, fp8_experts: bool = False
) -> dict[str, Tensor]:
    """Draw all tensors by their names in a checkpoint; the residual stream stays below 10."""
    random = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in tensor_shapes(config).items():
        drawn = _draw(name, shape, random)
        if fp8_experts and len(shape) == 3 and name.startswith("text"):
            tensors |= _in_float8(name, drawn)
        else:
            tensors[name] = drawn.to(dtype)
    # the end, control tokens and partial characters are never chosen; the end loses to the coordinate id, too
    tensors["text.lm_head.bias"][:_WORDS] = _NEVER
    tensors["text.lm_head.bias"][config.tokenizer.eos_id] = 2 * _NEVER
    return tensors


def _in_float8(name: str, weight: Tensor) -> dict[str, Tensor]:
    block, fc = name.split(".mlp.")
    scales = weight.abs().amax(dim=-1) / 448
    kind = "up" if fc.startswith("fc1") else "down"
    return {
        name: (weight / scales[..., None]).to(torch.float8_e4m3fn),
        f"{block}.moe_quant.{kind}_scale": scales,
    }


def _draw(name: str, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    if name.endswith("bias") or (len(shape) == 1 and "ln" in name):
        fill = 0.0 if name.endswith("bias") else 1.0
        return torch.full(shape, fill, device=random.device)
    values = torch.randn(shape, generator=random, device=random.device)
    if name in ("text.wte", "vision.pos_emb") or name.endswith("_features"):
        return values
    values *= shape[-1] ** -0.5
    if name.endswith("attn.qkv.weight"):
        values[: 2 * shape[0] // 3] *= _ATTENTION_GAIN
    return values


def spell(token: int) -> str:
    """Return the word of a token, without the blank before it."""
    letters = []
    rest = token
    while rest:
        rest, letter = divmod(rest, 26)
        letters.append(chr(ord("a") + letter))
    return "".join(letters)


def word_ids(answer: str) -> list[int]:
    """Return the tokens of an answer."""
    return [sum((ord(letter) - ord("a")) * 26**place for place, letter in enumerate(word)) for word in answer.split()]


def word_tokenizer(vocab_size: int, controls: Sequence[str] = _CONTROL) -> Tokenizer:
    """Return a tokenizer with one word per id; it splits input into bytes, so that a character is a token.

    The ids of `controls` come first, then those of the bytes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġ{spell(token)}" for token in range(len(controls) + len(alphabet), vocab_size)]
    vocabulary = {spelling: number for number, spelling in enumerate([*controls, *alphabet, *words])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(spelling, special=True) for spelling in controls])
    return Tokenizer(backend.to_str())


def write_folder(folder: Path, size: str, *, device: str, dtype: torch.dtype, seed: int = 1) -> None:
    """Write a random model as a checkpoint that a worker loads: config.json, model.safetensors, tokenizer.json."""
    config = SIZES[size.removesuffix(_FP8)]
    tensors = random_tensors(config, device=device, dtype=dtype, seed=seed, fp8_experts=size.endswith(_FP8))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(word_tokenizer(config.text.vocab_size).document(), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    document = {"model_type": config.model_type, "stoop": {"name": "random", "untrained": True}, **config.document()}
    # last, so that a folder with a config is complete
    (folder / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Write a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=[*SIZES, "full3-fp8", "tiny3-fp8"], default="full")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    arguments = parser.parse_args()
    write_folder(arguments.folder, arguments.size, device=arguments.device, dtype=DTYPES[arguments.dtype])
    print(f"{arguments.folder}: {(arguments.folder / 'model.safetensors').stat().st_size / 1e9:.2f} GB of weights")


if __name__ == "__main__":
    main()
