"""The form of OpenAI's audio routes, checked, as a request to the queue."""

import base64
from typing import Any, Final, Literal

import msgspec
from starlette.datastructures import FormData, UploadFile

from stoop.gateway.ask import Ask
from stoop.gateway.body import convert_body
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.forms import read_form
from stoop_schemas.job import IMAGE_LIMIT
from stoop_schemas.skill import Skill
from stoop_schemas.transcript import Timestamps

__all__ = ["AUDIO_FIELDS", "AudioRequest", "read_audio"]

_GRANULARITIES: Final = "timestamp_granularities[]"
_FIELDS: Final = (
    *("file", "model", "language", "prompt", "response_format", "temperature", "stream", "chunking_strategy"),
    _GRANULARITIES,
)
_ENGLISH_ONLY: Final = ("file", "model", "prompt", "response_format", "temperature")
AUDIO_FIELDS: Final = {Skill.TRANSCRIBE: _FIELDS, Skill.TRANSLATE: _ENGLISH_ONLY}
"""The fields of the form of each skill."""

_PREFIX: Final = "data:audio/mpeg;base64,"
"""The media type means nothing to a worker, which looks at the bytes."""


class _AudioForm(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float = 0.0
    stream: bool = False
    chunking_strategy: Literal["auto"] | None = None


class AudioRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: the recording as an address, or as bytes if it is too large for one."""

    skill: Skill
    audio: str | bytes
    form: _AudioForm
    segments: bool
    words: bool

    @property
    def ask(self) -> Ask:
        """The request to the queue. Temperature 0 leaves the fallback to the worker, as OpenAI's service does.

        The strategy `auto` cuts the recording by voice activity, and transcribes the pieces at the same time.
        """
        form, cut = self.form, self.form.chunking_strategy == "auto"
        fields: dict[str, Any] = {
            "audio": self.audio,
            "language": form.language,
            "prompt": form.prompt,
            "timestamps": Timestamps.WORD if self.words else Timestamps.SEGMENT,
            "vad": cut,
            "parallel": cut,
            "stream": form.stream,
        }
        settings = {"temperature": form.temperature or None}
        return Ask(self.skill, settings=settings, model=form.model, fields=fields, names={"audio": "file"})


async def read_audio(call: Call, skill: Skill) -> AudioRequest:
    """Read and check the form; raises an `ApiError` (400, 404, 413 or 415) that names the field at fault."""
    form = await read_form(call, call.gateway.options.max_audio_bytes)
    try:
        fields = _checked(form, skill)
        granularities = _granularities(form, fields)
        await call.gateway.models.check(
            fields.model, skill, "transcriptions" if skill is Skill.TRANSCRIBE else "translations"
        )
        file = form["file"]
        assert isinstance(file, UploadFile), "it was checked"
        audio = _address(await file.read())
    finally:
        await form.close()
    words = "word" in granularities
    return AudioRequest(
        skill=skill, audio=audio, form=fields, segments="segment" in granularities or not words, words=words
    )


def _checked(form: FormData, skill: Skill) -> _AudioForm:
    for name in form:
        if name not in AUDIO_FIELDS[skill]:
            raise ApiError(400, "unsupported_parameter", f"{name[:64]} is not supported: leave it out", param=name[:64])
    if not isinstance(form.get("file"), UploadFile):
        raise ApiError(400, "invalid_value", "file must be an audio file", param="file")
    fields = convert_body({name: value for name, value in form.items() if isinstance(value, str)}, _AudioForm)
    if not 0 <= fields.temperature <= 1:
        raise ApiError(400, "invalid_value", "temperature must be from 0 to 1", param="temperature")
    if fields.stream and fields.response_format not in ("json", "text"):
        raise ApiError(400, "unsupported_value", "a stream has response_format json or text", param="stream")
    return fields


def _granularities(form: FormData, fields: _AudioForm) -> list[Any]:
    wanted: list[Any] = form.getlist(_GRANULARITIES)
    if any(each not in ("word", "segment") for each in wanted):
        raise ApiError(400, "invalid_value", "a granularity is word or segment", param=_GRANULARITIES)
    if wanted and fields.response_format != "verbose_json":
        raise ApiError(400, "invalid_value", "granularities need response_format verbose_json", param=_GRANULARITIES)
    return wanted


def _address(encoded: bytes) -> str | bytes:
    if len(encoded) * 4 // 3 + len(_PREFIX) + 4 > IMAGE_LIMIT:
        return encoded
    return _PREFIX + base64.b64encode(encoded).decode()
