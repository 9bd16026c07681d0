"""Chooses a model's family: a closed table from the architecture in config.json to the family's module."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.model import Model
from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.download import Download, Source, locate, snapshot
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["FAMILIES", "family_of", "load_model"]

FAMILIES: Final[Mapping[str, str]] = {
    "moondream1": "stoop_worker.models.moondream.family",
    "moondream3": "stoop_worker.models.moondream.family",
    "llama": "stoop_worker.models.decoder.family",
    "qwen3": "stoop_worker.models.decoder.family",
    "qwen3_vl": "stoop_worker.models.qwen_vl.family",
    "xlm-roberta": "stoop_worker.models.encoders.xlm_roberta.family",
    "gemma3_text": "stoop_worker.models.encoders.gemma.family",
    "whisper": "stoop_worker.models.whisper.family",
}
"""The `model_type`, or one of the `architectures`, and the module whose `open_model` loads such a model."""

_UNNAMED = "moondream1"  # Moondream's own files name no architecture; their sections identify them


class _Family(Protocol):
    def open_model(self, found: Source, options: LoadOptions, download: Download) -> Model | Encoder: ...


def load_model(
    source: str | Path,
    options: LoadOptions,
    *,
    revision: str | None = None,
    licence: str | None = None,
    download: Download = snapshot,
) -> Model | Encoder:
    """Load a model from a folder, a weight file, or a Hugging Face repository at a pinned revision.

    The `licence` of the weights, if it is known, is named if no revision is given.
    Raises `CheckpointError`, also for an unknown architecture; `ConfigError` if the options do not fit.
    """
    found = locate(source, revision, download, licence=licence)
    # imported only here, because the other families' modules are not needed
    family = cast(_Family, import_module(family_of(found.document())))
    return family.open_model(found, options, download)


def family_of(document: Mapping[str, Any]) -> str:
    """Return the module of a config.json's family; raises `CheckpointError` for an unknown architecture."""
    architectures = document.get("architectures")
    named = [document.get("model_type"), *(architectures if isinstance(architectures, list) else ())]
    names = [name for name in named if isinstance(name, str)] or [_UNNAMED]
    for name in names:
        if name in FAMILIES:
            return FAMILIES[name]
    raise CheckpointError(
        f"config: no family runs a model of {' or '.join(names)}; this version runs {', '.join(sorted(FAMILIES))}"
    )
