"""The toy's questions, by number, so that an answer can be kept."""

from functools import cache

import numpy as np

from stoop_worker.engine.request import Query, Request, Sampling
from stoop_worker.images import Image

__all__ = ["QUESTIONS", "SAMPLINGS", "Asked", "picture", "request"]

SIDES = ((8, 8), (12, 8), (4, 20))  # pixels of the images: 4, 6 and 5 patches
LONG = " ".join(map(str, range(101, 119)))
QUESTIONS: list[tuple[str, tuple[int, ...]]] = [
    ("5 6 7", ()),
    ("5 6 <image> 8", (0,)),
    ("5 6 <image> 9 10", (1,)),
    ("<image> 5 <image> 69999", (0, 1)),
    ("5 6 <image> 7 <image> 8", (0, 2)),
    ("5 6 <image> <image> 8", (0, 0)),
    (f"{LONG} <image> 7 8 <image> 11", (1, 2)),
    (f"{LONG} 3", ()),
]
SAMPLINGS = [
    Sampling(temperature=0.0, max_tokens=20, seed=0),
    Sampling(temperature=0.0, max_tokens=1, seed=1),
    Sampling(temperature=1.0, top_p=0.9, max_tokens=16, seed=2),
    Sampling(temperature=2.0, top_p=1.0, top_k=5, max_tokens=20, seed=3),
    Sampling(temperature=1.0, top_p=1.0, max_tokens=30, seed=4, stop=("7 ", "99"), stop_ids=tuple(range(1, 2000))),
]

Asked = tuple[int, int]
"""The numbers of a question and of a sampling."""


@cache
def picture(number: int) -> Image:
    pixels = np.random.default_rng(number).integers(0, 256, (*SIDES[number], 3), dtype=np.uint8)
    return Image.of(pixels)


def request(name: str, wanted: Asked) -> Request:
    question, images = QUESTIONS[wanted[0]]
    return Request(name, Query(question), tuple(map(picture, images)), SAMPLINGS[wanted[1]])
