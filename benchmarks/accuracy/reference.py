"""Moondream's reference code, from a clone of its repository or from a checkpoint's own folder."""

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

import tokenizers
import torch
from PIL import Image
from torch import Tensor

from stoop_worker.models.loading.download import locate, snapshot
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.files import read_config

__all__ = ["Reference", "from_clone", "from_remote_code"]

_CODE = "moondream.torch"
_CLONE = (
    "the reference code cannot be imported ({error}): run `git clone https://github.com/vikhyat/moondream` and give "
    "the folder as --reference. The package `moondream` on PyPI is a client without it."
)


class Reference(Protocol):
    """The methods of the reference that the comparison calls; an encoded image stands for the image."""

    def encode_image(self, image: Image.Image) -> object: ...

    def query(self, image: object, question: str, *, settings: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def caption(self, image: object, length: str, *, settings: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def detect(self, image: object, object: str, *, settings: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def point(self, image: object, object: str, *, settings: Mapping[str, Any]) -> Mapping[str, Any]: ...


def from_clone(clone: Path | None, folder: Path, *, device: str, dtype: str) -> Reference:
    """Load a Moondream 2 by the reference's own loader; ends the program if the code is missing or does not fit."""
    found = locate(folder, None, snapshot)
    _, config = read_config(found)
    if config.text.moe is not None:
        raise SystemExit("the repository has Moondream 2 alone: for Moondream 3 give --remote-code")
    code, configs, weights = (_imported(clone, name) for name in ("moondream", "config", "weights"))
    document = (folder / "tokenizer.json").read_text(encoding="utf-8")
    # the reference would fetch its tokenizer from Hugging Face
    code.Tokenizer = SimpleNamespace(from_pretrained=lambda name: tokenizers.Tokenizer.from_str(document))  # type: ignore[attr-defined]
    model = code.MoondreamModel(_config(config, configs), dtype=getattr(torch, dtype))
    weights.load_weights_into_model(str(found.weights[0]), model)
    model.to(device)
    _take_exact_pixels(model, getattr(torch, dtype))
    return model  # type: ignore[no-any-return]


def from_remote_code(folder: Path, *, device: str, dtype: str) -> Reference:
    """Load by the Python files in the checkpoint's folder; ends the program if they or transformers are missing."""
    if not list(folder.glob("*.py")):
        raise SystemExit(f"{folder} has no Python files: download the whole repository of the model")
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise SystemExit("--remote-code needs transformers: pip install transformers accelerate") from error
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=getattr(torch, dtype))
    return model.to(device).eval()  # type: ignore[no-any-return]


def _imported(clone: Path | None, name: str) -> ModuleType:
    if clone is not None and str(clone) not in sys.path:
        sys.path.insert(0, str(clone))
    try:
        return importlib.import_module(f"{_CODE}.{name}")
    except ImportError as error:
        raise SystemExit(_CLONE.format(error=error)) from error


def _config(config: ModelConfig, configs: ModuleType) -> object:
    """Return the sizes as the reference's own config, without the fields that it does not have."""
    sections = {
        "text": "TextConfig",
        "vision": "VisionConfig",
        "region": "RegionConfig",
        "tokenizer": "TokenizerConfig",
    }
    document, known = json.loads(json.dumps(config.document())), {}
    for section, name in sections.items():
        names = {field.name for field in fields(getattr(configs, name))}
        known[section] = {key: value for key, value in document[section].items() if key in names}
    return configs.MoondreamConfig.from_dict(known)


def _take_exact_pixels(model: Any, dtype: torch.dtype) -> None:
    """Undo the rounding of pixels to bfloat16 for a wider model; its values tell all 256 levels apart."""
    encode = model._vis_enc

    def widened(crops: Tensor) -> Tensor:
        if dtype != torch.bfloat16:
            crops = ((crops.float() + 1) * 127.5).round().to(dtype) / 127.5 - 1
        return encode(crops)  # type: ignore[no-any-return]

    model._vis_enc = widened
