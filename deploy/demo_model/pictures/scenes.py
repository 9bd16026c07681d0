"""Made-up scenes whose contents are known exactly; a seed gives the same scene on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from random import Random

from deploy.demo_model.pictures.shapes import DIGITS, SHAPES, aspect
from stoop_worker.images import CropGeometry, select_tiling

__all__ = ["COLOURS", "Background", "Scene", "Thing", "compose", "frame", "scene"]

COLOURS = {
    "red": (214, 38, 38),
    "orange": (246, 134, 30),
    "yellow": (248, 216, 48),
    "green": (38, 160, 68),
    "blue": (38, 92, 216),
    "purple": (146, 58, 182),
    "white": (246, 246, 246),
    "black": (14, 14, 14),
}
_JITTER = 11  # levels by which a thing's colour may differ from its name's
_GEOMETRY = CropGeometry()
_LEAST_ONE, _LEAST_MANY = 24.0, 20.0  # a thing's least side in the pixels of the local crops
_LEAST_PIXELS = 14.0  # and in the image's own pixels
_MOST_OVERLAP = 0.12  # of the smaller of two boxes
_APART = 0.012  # of the image's width, so that the order from left to right is clear


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape or digit: its centre and size are fractions of the image's width and height."""

    kind: str
    colour: str
    rgb: tuple[int, int, int]
    x: float
    y: float
    w: float
    h: float

    @property
    def noun(self) -> str:
        """Return the word for its kind: a shape's name, or "digit"."""
        return "digit" if self.kind in DIGITS else self.kind

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Return (x_min, y_min, x_max, y_max)."""
        return self.x - self.w / 2, self.y - self.h / 2, self.x + self.w / 2, self.y + self.h / 2


@dataclass(frozen=True, slots=True)
class Background:
    """A gradient of two colours, and the grain and JPEG quality (None: PNG) of the whole image."""

    start: tuple[int, int, int]
    end: tuple[int, int, int]
    downwards: bool
    grain: float
    quality: int | None


@dataclass(frozen=True)
class Scene:
    """`things` go from left to right by their centres; `width` and `height` are pixels."""

    seed: int
    width: int
    height: int
    background: Background
    things: tuple[Thing, ...]

    @cached_property
    def dark(self) -> bool:
        """Return whether the background is dark."""
        return sum(self.background.start) < 3 * 128

    @cached_property
    def crops(self) -> int:
        """Return the number of local crops that the model sees."""
        return select_tiling(self.height, self.width, _GEOMETRY).count


def scene(seed: int, *, many_crops: bool) -> Scene:
    """Return the scene of a seed, seen in one crop or in many."""
    random = Random(f"scene {seed} {many_crops}")
    width, height = frame(random, many_crops=many_crops)
    return compose(random, seed, width, height)


def frame(random: Random, *, many_crops: bool) -> tuple[int, int]:
    """Draw an image's (width, height) in pixels."""
    while True:
        if many_crops:
            width, height = random.choice(
                [(640, 480), (480, 640), (850, 600), (910, 910), (1024, 768), (400, 900)]
                + [(random.randint(380, 1200), random.randint(380, 1000))] * 6
            )
        else:
            width, height = random.choice(
                [(378, 378)]
                + [(random.randint(230, 378), random.randint(230, 378))] * 4
                + [(random.randint(300, 520), 360)]
            )
            if random.random() < 0.5:
                width, height = height, width
        tiling = select_tiling(height, width, _GEOMETRY)
        if (tiling.count > 1) == many_crops and max(width, height) <= 2.6 * min(width, height):
            return width, height


def compose(random: Random, seed: int, width: int, height: int) -> Scene:
    """Draw a scene of a given size in pixels."""
    dark = random.random() < 0.4
    background = _background(random, dark)
    names = [name for name in COLOURS if name != ("black" if dark else "white")]
    wanted = random.randint(1, 10 if random.random() < 0.3 else 6)
    looks = _looks(random, names, wanted)
    things: list[Thing] = []
    scale = _Scale.of(width, height, small=random.random() < 0.5)
    for kind, colour in looks:
        thing = _place(random, scale, kind, colour, things)
        if thing is not None:
            things.append(thing)
    things.sort(key=lambda thing: thing.x)
    return Scene(seed, width, height, background, tuple(things))


@dataclass(frozen=True, slots=True)
class _Scale:
    width: int
    height: int
    least: float
    most: float

    @classmethod
    def of(cls, width: int, height: int, *, small: bool) -> "_Scale":
        tiling = select_tiling(height, width, _GEOMETRY)
        seen_height, seen_width = tiling.size(_GEOMETRY)
        zoom = sqrt(seen_height / height * seen_width / width)
        floor = _LEAST_ONE if tiling.count == 1 else _LEAST_MANY
        least = max(floor / zoom, _LEAST_PIXELS)
        most = min(width, height) * 0.42
        return cls(width, height, least, min(most, 2 * least) if small else most)


def _background(random: Random, dark: bool) -> Background:
    low, high = (22, 78) if dark else (186, 238)
    start = _tint(random, low, high)
    end = start if random.random() < 0.4 else _tint(random, low, high)
    grain = 0.0 if random.random() < 0.3 else random.uniform(1, 7)
    quality = None if random.random() < 0.3 else random.randint(75, 96)
    return Background(start, end, random.random() < 0.5, grain, quality)


def _tint(random: Random, low: int, high: int) -> tuple[int, int, int]:
    level = random.randint(low, high)
    red, green, blue = (level + random.randint(-12, 12) for _ in range(3))
    return red, green, blue


def _looks(random: Random, colours: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Draw each thing's kind and colour, often from a few looks only, so that there are equal things to count."""

    def look() -> tuple[str, str]:
        kind = random.choice(DIGITS) if random.random() < 0.14 else random.choice(SHAPES)
        return kind, random.choice(colours)

    if random.random() < 0.45:
        few = [look() for _ in range(random.randint(1, 3))]
        return [random.choice(few) if random.random() < 0.85 else look() for _ in range(count)]
    return [look() for _ in range(count)]


def _place(random: Random, scale: _Scale, kind: str, colour: str, others: Sequence[Thing]) -> Thing | None:
    """Find a free place for a thing, or give up."""
    near = random.random() < 0.2  # allowed to overlap a little
    rgb = _shade(random, colour)
    for _ in range(30):
        least = scale.least * (1.4 if kind in DIGITS else 1)
        size = exp(random.uniform(log(least), log(max(scale.most, least * 1.05))))
        h, w = size / scale.height, size * aspect(kind) / scale.width
        x, y = random.uniform(w / 2 + 0.004, 1 - w / 2 - 0.004), random.uniform(h / 2 + 0.004, 1 - h / 2 - 0.004)
        thing = Thing(kind, colour, rgb, x, y, w, h)
        if all(_apart(thing, other, near=near) for other in others):
            return thing
    return None


def _shade(random: Random, colour: str) -> tuple[int, int, int]:
    red, green, blue = (max(0, min(255, level + random.randint(-_JITTER, _JITTER))) for level in COLOURS[colour])
    return red, green, blue


def _apart(one: Thing, other: Thing, *, near: bool) -> bool:
    across, along = abs(one.x - other.x), abs(one.y - other.y)
    if across < _APART or max(across, along) * _GEOMETRY.grid < 1.1:
        return False
    over_x = (one.w + other.w) / 2 - across
    over_y = (one.h + other.h) / 2 - along
    if near and over_x > 0 and over_y > 0:
        return over_x * over_y <= _MOST_OVERLAP * min(one.w * one.h, other.w * other.h)
    return over_x < -0.006 or over_y < -0.006
