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


_PACKAGE = "moondream_remote_code"
_TRANSFORMERS = "pip install 'transformers<5' accelerate in an environment of its own"


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
    _give_tokenizer(code, folder)
    model = code.MoondreamModel(_config(config, configs), dtype=getattr(torch, dtype))
    weights.load_weights_into_model(str(found.weights[0]), model)
    model.to(device)
    _take_exact_pixels(model, getattr(torch, dtype))
    return model  # type: ignore[no-any-return]


def from_remote_code(folder: Path, *, device: str, dtype: str) -> Reference:
    """Load by the Python files in the checkpoint's folder; ends the program if they or transformers are missing."""
    if not list(folder.glob("*.py")):
        raise SystemExit(f"{folder} has no Python files: download the whole repository of the model")
    module, name = _class_of(folder)
    # imported as a package of its own: transformers copies only some of a local folder's files
    for earlier in [name for name in sys.modules if name.startswith(f"{_PACKAGE}.")]:
        del sys.modules[earlier]  # the code of another folder
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[_PACKAGE] = package
    try:
        model_class = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    except ImportError as error:
        raise SystemExit(f"the code in {folder} needs more packages ({error}): {_TRANSFORMERS}") from error
    for code in [each for key, each in sys.modules.items() if key.startswith(f"{_PACKAGE}.")]:
        _give_tokenizer(code, folder)
    try:
        model = model_class.from_pretrained(folder, torch_dtype=getattr(torch, dtype))
    except AttributeError as error:
        raise SystemExit(f"the code in {folder} does not run here ({error}): {_TRANSFORMERS}") from error
    for weight in model.parameters():  # its constructor makes some in bfloat16, whatever is asked for
        weight.data = weight.data.to(getattr(torch, dtype))
    _take_exact_pixels(model.model, getattr(torch, dtype))
    return model.to(device).eval()  # type: ignore[no-any-return]


def _class_of(folder: Path) -> tuple[str, str]:
    """Return the module and the name of the model's class, as config.json has them for transformers."""
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        module, _, name = document["auto_map"]["AutoModelForCausalLM"].rpartition("--")[2].partition(".")
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"{folder}/config.json names no AutoModelForCausalLM in auto_map") from error
    return module, name


def _give_tokenizer(code: ModuleType, folder: Path) -> None:
    """Let the code read the folder's tokenizer, which it would fetch from Hugging Face."""
    document = folder / "tokenizer.json"
    if hasattr(code, "Tokenizer") and document.exists():
        text = document.read_text(encoding="utf-8")
        code.Tokenizer = SimpleNamespace(from_pretrained=lambda name: tokenizers.Tokenizer.from_str(text))


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
    """Undo the rounding of pixels to bfloat16 for a wider model; its values distinguish all 256 levels."""
    if not hasattr(model, "_vis_enc"):
        return
    encode = model._vis_enc

    def widened(crops: Tensor) -> Tensor:
        if dtype != torch.bfloat16:
            crops = ((crops.float() + 1) * 127.5).round().to(dtype) / 127.5 - 1
        return encode(crops)  # type: ignore[no-any-return]

    model._vis_enc = widened
