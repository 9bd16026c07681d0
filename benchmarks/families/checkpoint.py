"""Random weights, drawn on the device, and the folder from which the product loads them.

The shapes are those of the model in transformers, whose parameters are set to the checkpoint's values. So it serves
as the reference for answers.
"""

import importlib
import json
import re
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.families.languages import words_of, write_language

__all__ = ["DENSES", "random_denses", "random_reference", "write_folder"]

_QUANTISED: Final = "quantization_config"
_ATTENTION_GAIN: Final = sqrt(3)  # makes attention sharp enough for a wrong position to change the answers
_GAINED: Final = re.compile(r"\b(q|k)_(proj|norm)\.weight$")
_LAST_NORM: Final = re.compile(r"^model\.(language_model\.|decoder\.layer_)?norm\.weight$")
_TABLE: Final = re.compile(r"(embed_\w+|pos_embed|\w+_embeddings)\.weight$")
_LINEAR: Final = re.compile(r"layers\.\d+\.\w+\.\w+_proj\.weight$")
_UNCHOSEN: Final = 0.02  # the scale of embeddings that a tied head must not choose: control tokens, bytes, times
_GEMMA: Final = "gemma3_text"

DENSES: Final = ("2_Dense", "3_Dense")
"""The folders of the layers over an embeddinggemma's mean."""
_BLOCK: Final = 128
_PIXELS: Final = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
_E4M3_MAX: Final = 448


def random_reference(document: Mapping[str, Any], *, device: str, dtype: torch.dtype, seed: int = 1) -> Any:
    """Return the model in transformers, in float32, with random weights that `dtype` or float8 represents exactly."""
    transformers: Any = importlib.import_module("transformers")
    settings = {name: value for name, value in document.items() if name != _QUANTISED}
    config = transformers.AutoConfig.for_model(**settings)
    config._attn_implementation = "eager"
    with torch.device(device):
        model = getattr(transformers, document["architectures"][0])(config).eval()
    random = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_draw(name, parameter, random, document).to(dtype))
            if _QUANTISED in document and _LINEAR.search(name):
                parameter.copy_(_spread(*_quantised(parameter)))
    return model


def write_folder(folder: Path, document: Mapping[str, Any], model: Any, dtype: torch.dtype) -> None:
    """Write a checkpoint with this model's weights."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if _QUANTISED in document and _LINEAR.search(name):
            tensors[name], tensors[f"{name}_scale_inv"] = _quantised(parameter.detach())
        else:
            tensors[name] = parameter.detach().to(dtype)
    save_file(tensors, folder / "model.safetensors")
    write_language(folder, document)
    if "vision_config" in document:
        side = {"patch_size": 16, "merge_size": 2}
        (folder / "preprocessor_config.json").write_text(json.dumps({"size": _PIXELS, **side}))
    if document["model_type"] == _GEMMA:
        for name, dense in zip(DENSES, random_denses(document, str(model.device)), strict=True):
            (folder / name).mkdir()
            save_file({"linear.weight": dense}, folder / name / "model.safetensors")
    card = {"stoop": {"name": "random", "untrained": True}}
    (folder / "config.json").write_text(json.dumps({**document, **card}))


def random_denses(document: Mapping[str, Any], device: str) -> list[Tensor]:
    """Return the layers over an embeddinggemma's mean: one widens it, the other brings it back."""
    dim = document["hidden_size"]
    random = torch.Generator(device).manual_seed(2)
    shapes = ((4 * dim, dim), (dim, 4 * dim))
    return [torch.randn(shape, generator=random, device=device) / sqrt(shape[1]) for shape in shapes]


def _draw(name: str, like: Tensor, random: torch.Generator, document: Mapping[str, Any]) -> Tensor:
    is_gemma = document["model_type"] == _GEMMA
    values = torch.randn(like.shape, generator=random, device=like.device)
    if _LAST_NORM.search(name):
        return values  # of both signs, or a tied head repeats one token for ever
    gain = _ATTENTION_GAIN if _GAINED.search(name) else 1.0
    if like.dim() == 1:
        # Gemma's norms multiply by 1 + weight
        return 0.1 * values + (0.0 if name.endswith("bias") else gain - is_gemma)
    if not _TABLE.search(name):
        return values * (gain / sqrt(like[0].numel()))
    if name.startswith("model.") and "embed_tokens" in name:
        words = words_of(document)
        values[: words.start] *= _UNCHOSEN
        values[words.stop :] *= _UNCHOSEN
    return values / sqrt(like.shape[1]) if is_gemma else values  # which Gemma multiplies by that root


def _quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight in float8 with the scale of each block; quantising the result again changes nothing."""
    rows, columns = weight.shape
    blocks = weight.float().view(rows // _BLOCK, _BLOCK, columns // _BLOCK, _BLOCK)
    # powers of two, so that a quantised weight quantises to itself
    scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(dim=(1, 3)) / _E4M3_MAX)))
    quantised = (blocks / scale[:, None, :, None]).view(rows, columns)
    return quantised.to(torch.float8_e4m3fn), scale


def _spread(quantised: Tensor, scale: Tensor) -> Tensor:
    return quantised.float() * scale.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
