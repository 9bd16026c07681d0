"""The words of a recording on the wire, and the options of a transcript."""

import re
from enum import StrEnum
from typing import Final, TypedDict

import msgspec

from stoop_schemas.address import is_object
from stoop_schemas.failure import FailureCode, Rejected

__all__ = [
    "AUDIO_SCHEMES",
    "LANGUAGE_PATTERN",
    "SpeechOptions",
    "Timestamps",
    "Transcript",
    "TranscriptSegment",
    "TranscriptWord",
    "check_speech",
]

AUDIO_SCHEMES: Final = ("s3://", "data:audio/", "data:video/", "https://")
"""The prefixes that an audio address may have; a video's sound is audio."""

LANGUAGE_PATTERN: Final = r"[a-z]{2,3}"
"""The code of a spoken language, whole: ISO 639-1, or three letters where that has none."""


def check_speech(audio: str | None, language: str | None, limit: int) -> None:
    """Raise `Rejected` unless this may be the address of a recording, of at most `limit` characters, and a language."""
    if language is not None and not re.fullmatch(LANGUAGE_PATTERN, language):
        message = "language must be the code of a language, such as en or yue"
        raise Rejected(FailureCode.INVALID_ARGUMENT, message, "language")
    if audio is None:
        return
    if len(audio) > limit:
        message = f"the audio's address has more than {limit} characters: use the object store"
        raise Rejected(FailureCode.AUDIO_TOO_LARGE, message, "audio")
    if not audio.startswith(AUDIO_SCHEMES):
        message = "audio must be an s3://bucket/key, data:audio/... or https:// address"
        raise Rejected(FailureCode.INVALID_ARGUMENT, message, "audio")
    if audio.startswith("s3://") and not is_object(audio):
        message = "audio names no object: write s3://bucket/key, with a bucket and a key"
        raise Rejected(FailureCode.INVALID_ARGUMENT, message, "audio")


class Timestamps(StrEnum):
    """The times in a transcript: none, of its segments, or of its segments and words."""

    NONE = "none"
    SEGMENT = "segment"
    WORD = "word"


class SpeechOptions(TypedDict, total=False):
    """The options of a transcript.

    `language` is the code of the spoken language ("en"); without it the model detects it. A `prompt` may spell names.
    `timestamps` is "none", "segment" (the default) or "word". With `vad` the parts without speech are left out. With
    `parallel` all windows of a long recording are transcribed at the same time, none with the text of another.
    """

    language: str | None
    prompt: str | None
    timestamps: str
    vad: bool
    parallel: bool


class TranscriptWord(msgspec.Struct, frozen=True):
    """A word with the space and punctuation around it; times are seconds from the beginning of the recording."""

    word: str
    start: float
    end: float
    probability: float


class TranscriptSegment(msgspec.Struct, frozen=True):
    """A piece of speech; the names are those of OpenAI's `verbose_json`.

    `start` and `end` are seconds from the beginning of the recording. `seek` is the frame, of 10 ms, at which the
    segment's window begins. `tokens` are the model's ids. The other figures are those of its window: the temperature
    that gave it, the mean log-probability of its tokens, its compression ratio (a high one means repetition), and the
    probability that nobody speaks.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class Transcript(msgspec.Struct, frozen=True, omit_defaults=True):
    """The words of a recording.

    `language` is the code of the spoken language, `duration` the recording's in seconds. `words` is present if the job
    asks for the times of words.
    """

    text: str
    language: str
    duration: float
    segments: list[TranscriptSegment]
    words: list[TranscriptWord] | None = None
