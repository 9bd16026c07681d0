"""OpenAI's audio routes: a recording as text, JSON or subtitles, whole or as a stream of its text."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.responses import Response

from stoop.gateway.answer import json_response, result_of
from stoop.gateway.audio_request import AudioRequest, read_audio
from stoop.gateway.call import Call
from stoop.gateway.languages import english_name
from stoop.gateway.pieces import Piece
from stoop.gateway.stream import stream_job
from stoop.gateway.submission import accepted, prepare, submit
from stoop.subtitles import write_transcript
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from stoop_schemas.transcript import Transcript

__all__ = ["transcribe", "translate"]


async def transcribe(call: Call) -> Response:
    """Answer `POST /v1/audio/transcriptions`."""
    return await _answer(call, Skill.TRANSCRIBE)


async def translate(call: Call) -> Response:
    """Answer `POST /v1/audio/translations`."""
    return await _answer(call, Skill.TRANSLATE)


async def _answer(call: Call, skill: Skill) -> Response:
    request = await read_audio(call, skill)
    job = await prepare(call, request.ask)
    if request.form.stream:
        return await stream_job(call, job, _Frames())
    if call.wants_no_wait:
        return accepted(call, await submit(call, job))
    return _written(call, request, _transcript_of(await result_of(call, job)))


def _written(call: Call, request: AudioRequest, transcript: Transcript) -> Response:
    form = request.form.response_format
    if form == "verbose_json":
        return json_response(call, _verbose(request, transcript))
    if form == "json":
        usage = {"type": "duration", "seconds": math.ceil(transcript.duration)}
        return json_response(call, {"text": transcript.text, "usage": usage})
    text = write_transcript(transcript, "txt" if form == "text" else form)
    return Response(text, headers=call.headers, media_type="text/plain; charset=utf-8")


def _verbose(request: AudioRequest, transcript: Transcript) -> dict[str, Any]:
    translated = request.skill is Skill.TRANSLATE
    answer: dict[str, Any] = {
        "task": request.skill.value,
        "language": "english" if translated else english_name(transcript.language),
        "duration": transcript.duration,
        "text": transcript.text,
    }
    if request.segments:
        answer["segments"] = transcript.segments
    if request.words:
        words = transcript.words or []
        answer["words"] = [{"word": each.word.strip(), "start": each.start, "end": each.end} for each in words]
    return answer | {"usage": {"type": "duration", "seconds": math.ceil(transcript.duration)}}


def _transcript_of(result: Result) -> Transcript:
    assert result.output is not None and result.output.transcript is not None, "a transcription has a transcript"
    return result.output.transcript


class _Frames:
    """OpenAI's stream of a transcription: pieces of its text, then the whole."""

    def opening(self) -> Iterable[str]:
        return ()

    def piece(self, piece: Piece) -> Iterable[str]:
        return (_json({"type": "transcript.text.delta", "delta": piece.text}),)

    def ending(self, result: Result) -> Iterable[str]:
        spent = result.metrics
        usage = {
            "type": "tokens",
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "total_tokens": spent.input_tokens + spent.output_tokens,
        }
        return (_json({"type": "transcript.text.done", "text": _transcript_of(result).text, "usage": usage}),)


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
