"""The outputs of a transcription: passages as they are found, and all of them at the end."""

from dataclasses import dataclass

from stoop_worker.engine.request import FinishReason, Segment, Usage, Window, Word

__all__ = ["Passage", "Transcription"]


@dataclass(frozen=True, slots=True)
class Passage:
    """A segment of a recording, with its words; times are seconds from the recording's beginning.

    `seek` is the frame at which its window begins. `window` and `temperature` are the attempt that gave it.
    """

    number: int
    seek: int
    segment: Segment
    words: tuple[Word, ...]
    window: Window
    temperature: float


@dataclass(frozen=True, slots=True)
class Transcription:
    """All passages of a recording of `duration` seconds; `language` is the code of the spoken language."""

    language: str
    duration: float
    passages: tuple[Passage, ...]
    usage: Usage
    reason: FinishReason

    @property
    def text(self) -> str:
        """The text of all passages."""
        return "".join(passage.segment.text for passage in self.passages).strip()
