"""Tensors of a request as Python's values, and a text as the tensor of an answer.

An input's elements come in `raw_input_contents`, one entry for each input, or in the input's own `contents`. Raw
elements are little-endian; one of BYTES has its length before it, as four bytes.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from stoop.gateway.errors import ApiError

__all__ = ["Tensor", "read_tensors", "write_text"]

_MOST_INPUTS: Final = 64
_MOST_ELEMENTS: Final = 4096
_FORMATS: Final = {
    "BOOL": "?",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_BYTES: Final = "BYTES"
_DATATYPES: Final = ", ".join([_BYTES, *_FORMATS])
_FIELDS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    _BYTES: "bytes_contents",
}
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input. `elements` are in row-major order: `bytes`, `bool`, `int` or `float`."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    elements: tuple[Any, ...]


def read_tensors(request: Any) -> dict[str, Tensor]:
    """Return the inputs of a `ModelInferRequest` by their names; raise an `ApiError` (400) that names the one at fault.

    At most 64 inputs with 4096 elements each.
    """
    raw = request.raw_input_contents
    if len(request.inputs) > _MOST_INPUTS:
        raise _wrong(f"the request has {len(request.inputs)} inputs: send at most {_MOST_INPUTS}")
    if raw and len(raw) != len(request.inputs):
        problem = f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs"
        raise _wrong(f"{problem}: send one entry for each input, in their order")
    tensors: dict[str, Tensor] = {}
    for index, given in enumerate(request.inputs):
        if given.name in tensors:
            raise _wrong(f"the input {_shown(given.name)} is there twice: send it once", given.name)
        tensors[given.name] = _read(given, raw[index] if raw else None)
    return tensors


def write_text(response: Any, name: str, text: bytes, *, raw: bool) -> None:
    """Add an output of one BYTES element to a `ModelInferResponse`, as raw contents or as typed ones."""
    output = response.outputs.add(name=name, datatype=_BYTES, shape=[1])
    if raw:
        response.raw_output_contents.append(_LENGTH.pack(len(text)) + text)
    else:
        output.contents.bytes_contents.append(text)


def _read(given: Any, raw: bytes | None) -> Tensor:
    if "shared_memory_region" in given.parameters:
        raise _input_wrong(
            given, "lies in shared memory, which this server does not support: send its elements in the request"
        )
    if given.datatype != _BYTES and given.datatype not in _FORMATS:
        raise _input_wrong(given, f"has the datatype {_shown(given.datatype)}: send one of {_DATATYPES}")
    count = _count(given)
    elements = _typed(given) if raw is None else _raw(given, raw, count)
    if len(elements) != count:
        found = f"has {len(elements)} elements, but the shape {list(given.shape)} is of {count}"
        raise _input_wrong(given, f"{found}: make the shape that of the elements")
    return Tensor(given.name, given.datatype, tuple(given.shape), elements)


def _count(given: Any) -> int:
    shape: list[int] = list(given.shape)
    if len(shape) > 8 or any(size < 0 for size in shape):
        raise _input_wrong(given, "has a shape with a negative or a ninth dimension: send the shape of its elements")
    count = math.prod(shape)
    if count > _MOST_ELEMENTS:
        raise _input_wrong(given, f"has {count} elements: send at most {_MOST_ELEMENTS}")
    return count


def _typed(given: Any) -> tuple[Any, ...]:
    field = _FIELDS.get(given.datatype)
    if field is None:
        raise _input_wrong(given, f"is {given.datatype}, which only raw_input_contents can hold: send it there")
    others = {each.name for each, _ in given.contents.ListFields()} - {field}
    if others:
        raise _input_wrong(given, f"is {given.datatype}, but has {min(others)}: put its elements into {field}")
    elements = getattr(given.contents, field)
    # counted before they become Python's objects
    return tuple(elements[: _MOST_ELEMENTS + 1])


def _raw(given: Any, raw: bytes, count: int) -> tuple[Any, ...]:
    if given.contents.ListFields():
        raise _input_wrong(given, "has contents and raw_input_contents: send only one of them")
    if given.datatype == _BYTES:
        return tuple(_split(given, raw, count))
    layout = struct.Struct(f"<{count}{_FORMATS[given.datatype]}")
    if len(raw) != layout.size:
        needed = f"has {len(raw)} raw bytes, but {count} elements of {given.datatype} are {layout.size}"
        raise _input_wrong(given, f"{needed}: send all of them, and no more")
    return layout.unpack(raw)


def _split(given: Any, raw: bytes, count: int) -> Iterator[bytes]:
    start = 0
    for _ in range(count):
        begin = start + _LENGTH.size
        start = begin + _LENGTH.unpack_from(raw, start)[0] if begin <= len(raw) else len(raw) + 1
        if start > len(raw):
            break
        yield raw[begin:start]
    if start != len(raw):
        problem = f"has raw bytes that are not {count} elements, each after its length as four little-endian bytes"
        raise _input_wrong(given, f"{problem}: send them whole, and no more")


def _input_wrong(given: Any, problem: str) -> ApiError:
    return _wrong(f"the input {_shown(given.name)} {problem}", given.name)


def _wrong(message: str, name: str | None = None) -> ApiError:
    return ApiError(400, "invalid_value", message, param=name)


def _shown(name: str) -> str:
    return repr(name[:64])
