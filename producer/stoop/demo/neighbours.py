"""The demo's texts: each question is embedded through the queue, and finds the sentence that means the same."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from stoop.client.blocking import Client
from stoop.demo.worker_process import EMBEDS

__all__ = ["Found", "find_nearest", "found_table"]

_PAIRS = {
    "There are four red stars.": "Das Bild zeigt vier rote Sterne.",
    "I can see nine blue circles.": "nine blue circles in an image",
    "Could you close the window?": "Schließe das Fenster.",
    "Switch off the radio.": "Mach das Radio aus.",
    "The dog is running.": "Der Hund rennt gerade.",
    "A recipe for soup.": "How is soup prepared?",
    "It is going to be snowy tomorrow.": "Morgen kommt Schnee.",
    "At nine the train departs.": "Der Zug fährt um neun ab.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A text, the nearest of all sentences, the cosine between the two, and the sentence that means the same."""

    text: str
    nearest: str
    cosine: float
    expected: str

    @property
    def is_right(self) -> bool:
        """True if the nearest sentence is the expected one."""
        return self.nearest == self.expected


def find_nearest(client: Client, pairs: Mapping[str, str] = _PAIRS) -> list[Found]:
    """Return the nearest sentence of each text."""
    sentences = list(pairs.values())
    vectors = client.embed([*pairs, *sentences])["embeddings"]
    found = []
    for text, vector in zip(pairs, vectors, strict=False):
        cosines = [sum(map(float.__mul__, vector, other)) for other in vectors[len(pairs) :]]
        best = max(range(len(sentences)), key=cosines.__getitem__)
        found.append(Found(text, sentences[best], cosines[best], pairs[text]))
    return found


def found_table(found: list[Found]) -> Table:
    """Return the table of texts and their nearest sentences."""
    table = Table("text", "nearest sentence", "cosine", "right", expand=True, title=f"Texts, by {EMBEDS}")
    for each in found:
        right = "yes" if each.is_right else f"no: {each.expected}"
        cells = (each.text, each.nearest, f"{each.cosine:.2f}", right)
        table.add_row(*map(Text, cells), style="green" if each.is_right else "red")
    return table
