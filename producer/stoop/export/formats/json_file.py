"""Writes a JSON file piece by piece, so that a million objects need the memory of one."""

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

import msgspec

__all__ = ["write_list", "write_members"]

_ENCODER: Final = msgspec.json.Encoder()


def write_list(file: BinaryIO, values: Iterable[Any]) -> None:
    """Write a list, one element per line."""
    file.write(b"[")
    for number, value in enumerate(values):
        file.write(b",\n" if number else b"\n")
        file.write(_ENCODER.encode(value))
    file.write(b"\n]")


def write_members(file: BinaryIO, head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> None:
    """Write an object with the members of `head`, then the lists. Each list is consumed only as it is written."""
    file.write(_ENCODER.encode(head)[:-1])
    for name, values in lists.items():
        file.write(b",\n" + _ENCODER.encode(name) + b": ")
        write_list(file, values)
    file.write(b"\n}\n")
