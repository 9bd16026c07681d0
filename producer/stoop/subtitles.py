"""A transcript as text, JSON, SubRip (srt) or WebVTT (vtt)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from stoop_schemas.transcript import Transcript, TranscriptSegment

__all__ = ["FORMATS", "cue", "srt", "vtt", "write_transcript"]


def srt(segments: Sequence[TranscriptSegment]) -> str:
    """Return the segments as SubRip: numbered cues, with a comma before the milliseconds."""
    return "".join(
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(segment.end, ',')}\n{_line(segment.text)}\n\n"
        for number, segment in enumerate(segments, start=1)
    )


def vtt(segments: Sequence[TranscriptSegment]) -> str:
    """Return the segments as WebVTT, with a full stop before the milliseconds."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(segment.start, '.')} --> {_clock(segment.end, '.')}\n{_escaped(_line(segment.text))}\n\n"
        for segment in segments
    )


def cue(segment: TranscriptSegment) -> str:
    """Return one segment as a line for people, such as "[00:01.000 --> 00:02.500] Good morning."."""
    start, end = (_clock(seconds, ".").removeprefix("00:") for seconds in (segment.start, segment.end))
    return f"[{start} --> {end}] {_line(segment.text)}\n"


def write_transcript(transcript: Transcript, kind: str) -> str:
    """Return the transcript in one of `FORMATS`."""
    return FORMATS[kind](transcript)


def _txt(transcript: Transcript) -> str:
    return transcript.text + "\n"


def _json(transcript: Transcript) -> str:
    return msgspec.json.format(msgspec.json.encode(transcript), indent=2).decode() + "\n"


def _clock(seconds: float, point: str) -> str:
    """Return hours:minutes:seconds and milliseconds."""
    total = round(max(0.0, seconds) * 1000)
    minutes, milliseconds = divmod(total, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"


def _line(text: str) -> str:
    """Return the text of a cue, without an arrow or an empty line, which would end it."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    """Return the text without the signs that begin a tag or a character reference in WebVTT."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


FORMATS: Final[Mapping[str, Callable[[Transcript], str]]] = {
    "txt": _txt,
    "json": _json,
    "srt": lambda transcript: srt(transcript.segments),
    "vtt": lambda transcript: vtt(transcript.segments),
}
"""The writer of each format."""
