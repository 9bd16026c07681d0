"""Turns the inputs of a request into a request to the queue.

An image or a recording is its file's bytes, or a text: an `s3://`, `https://` or `data:` address, or base64, because
JSON carries no bytes. A file of an image or a recording is never plain text, so the two cannot be confused.
"""

import asyncio
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from stoop.gateway.ask import Ask, is_gaze
from stoop.gateway.chat_request import Message, conversation
from stoop.gateway.errors import ApiError
from stoop.gateway.images import image_of
from stoop.gateway.kserve.inputs import INPUTS, Datatype, Input
from stoop_schemas.failure import FailureCode
from stoop_schemas.skill import Skill

__all__ = ["Value", "ask_of"]

Value = bytes | str | bool | int | float
"""One element of an input. BYTES may come as bytes or as text."""

_KINDS: Final[Mapping[Datatype, type | tuple[type, ...]]] = {
    "BYTES": (bytes, str),
    "BOOL": bool,
    "INT32": int,
    "INT64": int,
    "FP32": (float, int),
}
_NAMES: Final[Mapping[str, str]] = {
    (f"settings.{name.lower()}" if each.role == "setting" else name.lower()): name for name, each in INPUTS.items()
}
_AUDIO_ADDRESSES: Final = ("s3://", "https://", "data:audio/", "data:video/")


async def ask_of(inputs: Mapping[str, Sequence[Value]]) -> Ask:
    """Return the request that the inputs describe; each input is the list of its tensor's elements.

    An empty text counts as absent. Raises an `ApiError` (400) that names the input at fault.
    """
    values = {name: _read(name, elements) for name, elements in inputs.items()}
    given = {name: value for name, value in values.items() if not _is_absent(value)}
    skill = given.pop("SKILL", None)
    if skill is None:
        raise _invalid("SKILL", "give the input SKILL, for example query")
    fields = {name.lower(): value for name, value in given.items() if INPUTS[name].role == "field"}
    if is_gaze(skill, fields.get("object"), fields.get("spatial_refs")):
        skill = Skill.GAZE.value
        fields.pop("object", None)
    if "MESSAGES" in given:
        fields["messages"] = await _conversation(given["MESSAGES"])
    if "AUDIO" in given:
        fields["audio"] = await _audio_of(given["AUDIO"])
    return Ask(
        skill,
        await _image_of(given.get("IMAGE")),
        settings={name.lower(): value for name, value in given.items() if INPUTS[name].role == "setting"},
        model=given.get("MODEL"),
        lane=given.get("LANE"),
        fields=fields,
        names=_NAMES,
    )


def _read(name: str, elements: Sequence[Value]) -> Any:
    """Return the value of an input: a list if it may have many elements."""
    declared = INPUTS.get(name)
    if declared is None:
        raise _invalid(name[:64], f"there is no input {name[:64]!r}; known are {', '.join(INPUTS)}")
    values = [_element(declared, element) for element in elements]
    if declared.many:
        return values
    if len(values) != 1:
        raise _invalid(name, f"{name} has {len(values)} elements: its shape is [1]")
    return values[0]


def _is_absent(value: Any) -> bool:
    return isinstance(value, str | bytes | list) and not value


def _element(declared: Input, element: Value) -> Any:
    name, kinds = declared.name, _KINDS[declared.datatype]
    if not isinstance(element, kinds) or (isinstance(element, bool) and declared.datatype != "BOOL"):
        raise _invalid(name, f"{name} must be {declared.datatype}")
    if declared.datatype == "FP32":
        # a client's 0.1 arrives as the nearest value of 32 bits, and every other protocol sends 0.1
        return float(f"{float(element):.7g}")
    if declared.datatype != "BYTES" or declared.role in ("image", "audio"):
        return element
    text = _text(name, element)
    return _json(name, text) if declared.as_json and text else text


def _text(name: str, element: Value) -> str:
    if isinstance(element, str):
        return element
    assert isinstance(element, bytes)
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise _invalid(name, f"{name} is not text in UTF-8") from None


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise _invalid(name, f"{name} is not JSON") from None


async def _conversation(messages: Any) -> list[dict[str, Any]]:
    try:
        return await conversation(msgspec.convert(messages, list[Message]))
    except msgspec.ValidationError as error:
        raise _invalid("MESSAGES", f"MESSAGES: {error}") from None


def _plain(file: Value | None) -> str | None:
    """Return the text of an input that holds an address or base64; None for the bytes of a file."""
    if isinstance(file, bytes):
        return file.decode("ascii") if file.isascii() and b"\0" not in file else None
    return file if isinstance(file, str) else None


async def _image_of(image: Value | None) -> str | bytes | None:
    text = _plain(image)
    if text is not None:
        return await image_of(text, "IMAGE")
    assert image is None or isinstance(image, bytes)
    return image


async def _audio_of(audio: Value) -> str | bytes:
    text = _plain(audio)
    if text is None:
        assert isinstance(audio, bytes)
        return audio
    if text.startswith(_AUDIO_ADDRESSES):
        return text
    try:
        return await asyncio.to_thread(binascii.a2b_base64, text, strict_mode=True)
    except ValueError:
        message = "AUDIO is neither an address nor base64"
        raise ApiError(400, FailureCode.AUDIO_UNDECODABLE, message, param="AUDIO") from None


def _invalid(name: str, message: str) -> ApiError:
    return ApiError(400, FailureCode.INVALID_ARGUMENT, message, param=name)
