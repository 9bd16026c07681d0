"""A question to inputs and positions."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.inputs import Input, MediaInput, TokenInput
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.positions import Positions
from stoop_worker.engine.request import Media
from stoop_worker.images import Image
from tests.engine.toy_family.sizes import AXES, PATCH, VOCABULARY

__all__ = ["MARKER", "Prompt", "build_prompt", "grid_of"]

MARKER = "<image>"
"""Where an image stands in a question."""


@dataclass
class Prompt:
    """Inputs, and the positions of their indices on two axes; `next` is where the next token stands on both."""

    inputs: list[Input] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    next: int = 0

    def add_token(self, token: int) -> None:
        self.inputs.append(TokenInput(token))
        self.places.append((self.next, self.next))
        self.next += 1

    def add_image(self, image: Image) -> None:
        """A patch stands at its row and its column; what follows stands behind the longer side."""
        rows, columns = grid_of(image)
        self.inputs.append(MediaInput(image.digest, rows * columns, cost=rows * columns))
        self.places += [(self.next + row, self.next + column) for row in range(rows) for column in range(columns)]
        self.next += max(rows, columns)

    @property
    def positions(self) -> Positions:
        prompt: npt.NDArray[np.int64] = np.array(self.places, dtype=np.int64).reshape(-1, AXES)
        return Positions(prompt, delta=self.next - len(self.places))


def build_prompt(question: str, media: tuple[Media, ...]) -> Prompt:
    """Put the images where the markers stand, in their order; raises `RequestInvalid`."""
    words = question.split()
    if not words or words[-1] == MARKER:
        raise RequestInvalid("a question ends in a number")
    if words.count(MARKER) != len(media):
        raise RequestInvalid(f"the question has {words.count(MARKER)} markers {MARKER} for {len(media)} images")
    prompt, images = Prompt(), iter(media)
    for word in words:
        if word != MARKER:
            prompt.add_token(_token(word))
            continue
        image = next(images)
        if not isinstance(image, Image):
            raise RequestInvalid("this model takes whole images")
        prompt.add_image(image)
    return prompt


def grid_of(image: Image) -> tuple[int, int]:
    """Return the rows and columns of an image's patches."""
    height, width, _ = image.pixels.shape
    return height // PATCH, width // PATCH


def _token(word: str) -> int:
    if not word.isdecimal() or not 0 < int(word) < VOCABULARY:
        raise RequestInvalid(f"{word!r} is no number from 1 to {VOCABULARY - 1}")
    return int(word)
