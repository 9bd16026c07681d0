"""The demo's recordings: each is transcribed through the queue, and compared with its known words."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from stoop.client.blocking import Client
from stoop.demo.worker_process import HEARS, bundled

__all__ = ["Heard", "Recording", "find_recordings", "hear", "heard_table"]

_FOLDER = "demo_hearing/recordings"


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, its language ("en"), its words, and their English translation."""

    path: Path
    language: str
    text: str
    english: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A recording with its transcript; `expected` is the right one."""

    recording: Recording
    skill: str
    expected: str
    text: str
    language: str

    @property
    def is_right(self) -> bool:
        """True if the language and every word are right."""
        return self.language == self.recording.language and _words(self.text) == _words(self.expected)


def find_recordings() -> list[Recording]:
    """Return the recordings that ship with the demo."""
    folder = bundled(_FOLDER)
    talks = json.loads((folder / "talks.json").read_text(encoding="utf-8"))
    return [Recording(folder / talk["file"], talk["language"], talk["text"], talk["english"]) for talk in talks]


def hear(client: Client, recordings: Sequence[Recording], folder: str) -> list[Heard]:
    """Transcribe every recording of a folder in the store, and translate those that are not in English.

    The folder is an address such as "s3://bucket/demo".
    """
    found = []
    for recording in recordings:
        skills = {"transcribe": recording.text}
        if recording.language != "en":
            skills["translate"] = recording.english
        for skill, expected in skills.items():
            answer = client.run(skill, audio=f"{folder}/{recording.path.name}")["transcript"]
            found.append(Heard(recording, skill, expected, answer["text"], answer["language"]))
    return found


def heard_table(heard: Sequence[Heard]) -> Table:
    """Return the table of the spoken and the transcribed words."""
    table = Table("recording", "skill", "language", expand=True, title=f"Speech, by {HEARS}")
    table.add_column("heard", ratio=3)
    table.add_column("right")
    for each in heard:
        right = "yes" if each.is_right else f"no: {each.expected}"
        cells = (each.recording.path.name, each.skill, each.language, each.text, right)
        table.add_row(*map(Text, cells), style="green" if each.is_right else "red")
    return table


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
