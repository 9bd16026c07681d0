"""generation_config.json: the ids that end a text, and the sampling that a model's makers recommend."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import read_document

__all__ = ["read_ends", "read_generation", "read_sampling"]

_NAME: Final = "generation_config.json"
_RANGES: Final[Mapping[str, tuple[type, float]]] = {
    "temperature": (float, 10),
    "top_p": (float, 1),
    "top_k": (int, 1 << 20),
}


def read_generation(folder: Path) -> Mapping[str, Any]:
    """Return the contents of the file; empty if there is none."""
    path = folder / _NAME
    return read_document(path) if path.exists() else {}


def read_ends(generation: Mapping[str, Any], document: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """Return the ids that end a text, from generation_config.json or else config.json; raises `CheckpointError`."""
    given = generation.get("eos_token_id", document.get("eos_token_id"))
    ends = given if isinstance(given, list) else [given]
    if not ends or not all(isinstance(end, int) and 0 <= end < vocab_size for end in ends):
        raise CheckpointError(f"eos_token_id is {given!r}: expected ids below {vocab_size}")
    return tuple(ends)


def read_sampling(generation: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the temperature, top_p and top_k that the file has; raises `CheckpointError` for a value out of range."""
    sampling: dict[str, float] = {}
    for name, (kind, most) in _RANGES.items():
        value = generation.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= most or kind(value) != value:
            raise CheckpointError(f"{_NAME}: {name} is {value!r}: expected a number from 0 to {most}")
        sampling[name] = kind(value)
    if generation.get("do_sample") is False:
        sampling["temperature"] = 0.0
    return sampling
