"""`stoop transcribe` and `stoop translate`: a recording as text, subtitles or JSON."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from stoop.cli import render
from stoop.cli.exit_codes import exit_on_error
from stoop.cli.result import await_answer
from stoop.cli.skill_options import JobOptions, sampling, with_options
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.subtitles import write_transcript
from stoop.terminal import legible
from stoop_schemas.skill import Skill
from stoop_schemas.transcript import Timestamps

__all__ = ["transcribe", "translate"]


class _Format(StrEnum):
    """The form in which a transcript is printed."""

    TXT = "txt"
    JSON = "json"
    SRT = "srt"
    VTT = "vtt"


_FIELDS = ("language", "prompt", "timestamps", "vad", "parallel", "stream", "settings")

_Audio = Annotated[str, typer.Argument(help="An audio file, or an s3://, https:// or data: address.")]


@dataclass(frozen=True, slots=True)
class _SpeechOptions(JobOptions):
    """Options that run a skill on a recording and show its transcript."""

    stream: Annotated[bool, typer.Option("--stream", help="Show each segment as soon as it is transcribed.")] = False
    language: Annotated[str | None, typer.Option(help="Code of the spoken language, such as en; else detected.")] = None
    prompt: Annotated[str | None, typer.Option(help="Words that the speech continues, such as names to spell.")] = None
    timestamps: Annotated[Timestamps, typer.Option(help="The times in the transcript.")] = Timestamps.SEGMENT
    vad: Annotated[bool, typer.Option("--vad", help="Leave out the parts without speech.")] = False
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Work on all windows of a long recording at the same time.")
    ] = False
    format: Annotated[_Format, typer.Option(help="The form of the transcript.")] = _Format.TXT
    temperature: Annotated[
        float | None, sampling("Try this temperature alone; by default, higher ones after a doubtful text.")
    ] = None
    top_p: Annotated[float | None, sampling("Sample from this share of the likeliest tokens.")] = None
    top_k: Annotated[int | None, sampling("Sample from this many of the likeliest tokens.")] = None
    max_tokens: Annotated[int | None, sampling("Maximum tokens in a window of 30 seconds.")] = None
    seed: Annotated[int | None, sampling("The same seed repeats the same transcript.")] = None


@with_options
def transcribe(context: typer.Context, audio: _Audio, *, options: _SpeechOptions) -> None:
    """Transcribe the speech in a recording.

    For example: stoop transcribe talk.mp3 --format srt > talk.srt
    """
    _run(context, options, Skill.TRANSCRIBE, audio)


@with_options
def translate(context: typer.Context, audio: _Audio, *, options: _SpeechOptions) -> None:
    """Translate the speech in a recording into English text.

    For example: stoop translate vortrag.mp3 --stream
    """
    _run(context, options, Skill.TRANSLATE, audio)


def _run(context: typer.Context, options: _SpeechOptions, skill: Skill, audio: str) -> None:
    _check(options)
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=options.json):
        config = ProducerConfig().replace(lane=options.lane, job_model=options.model, timeout_seconds=options.timeout)
        fields = {name: getattr(options, name) for name in _FIELDS}
        with connect(config) as client:
            job_id = client.submit(client.prepare(skill, audio=audio, **fields))
            if options.no_wait:
                render.print_submitted(job_id, as_json=options.json)
            elif options.stream or options.json or options.format is _Format.TXT:
                await_answer(client, job_id, stream=options.stream, as_json=options.json)
            else:
                _print(client, job_id, options.format)


def _check(options: _SpeechOptions) -> None:
    if options.no_wait and options.stream:
        raise typer.BadParameter("--no-wait cannot be combined with --stream")
    if options.stream and (options.json or options.format is not _Format.TXT):
        raise typer.BadParameter("--stream prints segments as they come: leave --json and --format out")
    if options.format in (_Format.SRT, _Format.VTT) and options.timestamps is Timestamps.NONE:
        raise typer.BadParameter("subtitles need times: leave --timestamps none out")


def _print(client: Client, job_id: str, form: _Format) -> None:
    output = client.result(job_id).output
    assert output is not None and output.transcript is not None, "a completed transcription has a transcript"
    sys.stdout.write(legible(write_transcript(output.transcript, form)))
