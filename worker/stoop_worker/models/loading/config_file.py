"""Reads a config.json strictly: errors name fields that are unknown, missing or of the wrong type."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from stoop_worker.errors import CheckpointError

__all__ = ["fields_of", "ids_of", "number_in", "read_document"]

_Number = TypeVar("_Number", int, float)


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


def fields_of(kind: type, section: object, where: str) -> dict[str, Any]:
    """Return a section's fields as arguments for the dataclass `kind`; checks that whole numbers are whole."""
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


def number_in(document: Mapping[str, Any], name: str, kind: type[_Number], default: _Number | None = None) -> _Number:
    """Return a positive number; raises `CheckpointError`, which names the field."""
    found = document.get(name)
    found = default if found is None else found
    if found is None or not _fits(found, kind) or found <= 0:
        raise CheckpointError(f"config: {name} is {found!r}: expected a positive {kind.__name__}")
    return kind(found)


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
    return True  # the caller checks nested values
