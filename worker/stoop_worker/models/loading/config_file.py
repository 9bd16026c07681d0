"""Reading a config.json strictly: what is unknown, missing or of the wrong type is named."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from worker.errors import CheckpointError

__all__ = ["fields_of", "ids_of", "read_document", "sections_of"]

_SECTIONS = ("text", "vision", "region", "tokenizer")
_RELEASED = "moondream1"  # the model_type in every released Moondream 2 repository


def read_document(path: Path) -> Mapping[str, Any]:
    """Read a JSON object."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise CheckpointError(f"{path} must hold a JSON object")
    return document


def sections_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the mapping that holds the four sections, or None where a released Moondream 2 leaves them out."""
    inner = document.get("config")
    for place in (document, inner):
        if isinstance(place, Mapping) and any(name in place for name in _SECTIONS):
            missing = [name for name in _SECTIONS if name not in place]
            if missing:
                raise CheckpointError(f"config: the sections {', '.join(missing)} are missing")
            return place
    if document.get("model_type") == _RELEASED:
        return None
    raise CheckpointError(
        f"config: none of the sections {', '.join(_SECTIONS)}, and model_type is {document.get('model_type')!r}: "
        "only Moondream 2 is read"
    )


def fields_of(kind: type, section: object, where: str) -> dict[str, Any]:
    """Return a section's fields as arguments for the dataclass `kind`; whole numbers are checked to be such."""
    if not isinstance(section, Mapping):
        raise CheckpointError(f"config: {where} must be an object")
    types: dict[str, Any] = {known.name: known.type for known in fields(kind)}
    unknown = sorted(set(section) - set(types))
    if unknown:
        raise CheckpointError(f"config: {where} has fields this version does not know: {', '.join(unknown)}")
    for name, found in section.items():
        if not _fits(found, types[name]):
            raise CheckpointError(
                f"config: {where}.{name} is {found!r}: expected {getattr(types[name], '__name__', types[name])}"
            )
    return dict(section)


def ids_of(ids: object, where: str) -> tuple[int, ...]:
    """Return a list of token ids as a tuple."""
    if not isinstance(ids, list | tuple) or not all(_fits(token, int) for token in ids):
        raise CheckpointError(f"config: {where} must be a list of token ids")
    return tuple(ids)


def _fits(found: object, kind: object) -> bool:
    if kind is bool:
        return isinstance(found, bool)
    if kind is int:
        return isinstance(found, int) and not isinstance(found, bool)
    if kind == int | None:
        return found is None or _fits(found, int)
    if kind is float:
        return isinstance(found, int | float) and not isinstance(found, bool)
    return True  # what is nested is checked by who asks for it
