"""Finds the four sections of a Moondream in its config.json."""

from collections.abc import Mapping
from typing import Any

from stoop_worker.errors import CheckpointError

__all__ = ["MOONDREAM2", "MOONDREAM3", "sections_of"]

MOONDREAM2 = "moondream1"
"""The model_type in every released Moondream 2 repository."""

MOONDREAM3 = "moondream3"
"""The model_type in every released Moondream 3 repository."""

_SECTIONS = ("text", "vision", "region", "tokenizer")


def sections_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the mapping that holds the four sections, or None if a released model omits them."""
    inner = document.get("config")
    for place in (document, inner):
        if isinstance(place, Mapping) and any(name in place for name in _SECTIONS):
            missing = [name for name in _SECTIONS if name not in place]
            if missing:
                raise CheckpointError(f"config: the sections {', '.join(missing)} are missing")
            return place
    if document.get("model_type") in (MOONDREAM2, MOONDREAM3):
        return None
    raise CheckpointError(
        f"config: none of the sections {', '.join(_SECTIONS)}, and model_type is {document.get('model_type')!r}: "
        f"it must be {MOONDREAM2} or {MOONDREAM3}"
    )
