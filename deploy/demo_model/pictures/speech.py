"""Texts about a scene: captions, questions with their answers, and labels to find."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from deploy.demo_model.pictures.scenes import COLOURS, Scene, Thing
from deploy.demo_model.pictures.shapes import SHAPES

__all__ = [
    "ANYTHING",
    "LENGTHS",
    "PLACES",
    "Label",
    "Question",
    "captions",
    "labels",
    "phrase",
    "place",
    "questions",
    "riddle",
]

LENGTHS = ("short", "normal", "long")
NOUNS = (*SHAPES, "digit")
_ANY_SHAPE = "shape"  # every thing except a digit
PLACES = ("top left", "top", "top right", "left", "centre", "right", "bottom left", "bottom", "bottom right")
_SURE = 0.03  # how far a centre must be from a border between thirds of the image before its place is asked
_CLEARLY = 1.35  # ratio by which the larger of two must exceed the other


@dataclass(frozen=True, slots=True)
class Label:
    """The object of detect, point and counting questions; None stands for any."""

    colour: str | None = None
    noun: str | None = None

    def matches(self, thing: Thing) -> bool:
        """Return whether the label names the thing."""
        fits = self.noun in (None, thing.noun) or (self.noun == _ANY_SHAPE and thing.noun != "digit")
        return fits and self.colour in (None, thing.colour)

    def among(self, things: Iterable[Thing]) -> tuple[Thing, ...]:
        """Return the things the label names, in their order."""
        return tuple(thing for thing in things if self.matches(thing))

    def text(self, *, plural: bool = False) -> str:
        """Return the label in words: "red circle", "objects"."""
        noun = self.noun or "object"
        if plural:
            noun += "es" if noun.endswith("ss") else "s"
        return f"{self.colour} {noun}" if self.colour else noun


ANYTHING = Label()


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its kind, and its one right answer."""

    kind: str
    text: str
    answer: str


def captions(scene: Scene) -> dict[str, str]:
    """Return the caption of every length; things are named from left to right."""
    things = scene.things
    normal = _listed([phrase(thing) for thing in things])
    long = _listed([f"{phrase(thing)} {_at(place(thing))}" for thing in things])
    count = "1 object" if len(things) == 1 else f"{len(things)} objects"
    shade = "dark" if scene.dark else "light"
    return {
        "short": _sentence(_listed(_grouped(things))),
        "normal": _sentence(normal if len(things) == 1 else f"from left to right: {normal}"),
        "long": f"{count} on a {shade} background. " + _sentence(long),
    }


def riddle(random: Random) -> Question:
    """Draw a question that needs no image."""
    first, second = random.sample([*SHAPES, *COLOURS], 2)
    return Question("alphabet", f"Which comes first in the alphabet: {first} or {second}?", min(first, second))


def phrase(thing: Thing) -> str:
    """Return a thing with its article: "a red circle", "an orange 7"."""
    return f"{_article(thing.colour)} {thing.colour} {thing.kind}"


def place(thing: Thing) -> str:
    """Return the name of the ninth of the image that holds the thing's centre."""
    return PLACES[3 * min(2, int(thing.y * 3)) + min(2, int(thing.x * 3))]


def questions(scene: Scene, random: Random) -> list[Question]:
    """Draw one question of each kind for which the scene has a clear answer."""
    asked: list[Question | None] = [_count(scene, random), _is_there(scene, random)]
    alone = [thing for thing in scene.things if len(_named(thing).among(scene.things)) == 1]
    asked += _colour(scene, random), _shape(scene, random), _where(alone, random)
    asked += _larger(alone, random), _digit(scene, random)
    return [question for question in asked if question is not None]


def labels(scene: Scene, random: Random, *, absent: float = 0.2) -> Label:
    """Draw a label to find: of a thing in the scene, or any label with probability `absent`."""
    thing = random.choice(scene.things)
    colour, noun = thing.colour, thing.noun
    if random.random() < absent:
        # close misses teach more than wild ones
        colour = random.choice(list(COLOURS)) if random.random() < 0.6 else colour
        noun = random.choice(NOUNS) if random.random() < 0.6 else noun
    if random.random() < 0.1:
        noun = _ANY_SHAPE
    return random.choice([Label(colour, noun), Label(colour, noun), Label(None, noun), Label(colour, None)])


def _count(scene: Scene, random: Random) -> Question:
    everything = ANYTHING if random.random() < 0.6 else Label(None, _ANY_SHAPE)
    label = everything if random.random() < 0.25 else labels(scene, random, absent=0.15)
    name = label.text(plural=True)
    text = random.choice([f"How many {name} are there?", f"How many {name}?", f"Count the {name}."])
    return Question("count", text, str(len(label.among(scene.things))))


def _is_there(scene: Scene, random: Random) -> Question:
    label = labels(scene, random, absent=0.7)
    name = label.text()
    article = _article(name)
    text = random.choice([f"Is there {article} {name}?", f"Is there {article} {name} in the image?"])
    return Question("is there", text, "yes" if label.among(scene.things) else "no")


def _colour(scene: Scene, random: Random) -> Question | None:
    counts = Counter(thing.noun for thing in scene.things)
    once = [thing for thing in scene.things if counts[thing.noun] == 1]
    if not once:
        return None
    thing = random.choice(once)
    word = random.choice(["colour", "color"])
    return Question("colour", f"What {word} is the {thing.noun}?", thing.colour)


def _shape(scene: Scene, random: Random) -> Question | None:
    counts = Counter(thing.colour for thing in scene.things)
    once = [thing for thing in scene.things if counts[thing.colour] == 1]
    if not once:
        return None
    thing = random.choice(once)
    return Question("shape", f"What shape is the {thing.colour} object?", thing.noun)


def _where(alone: Sequence[Thing], random: Random) -> Question | None:
    sure = [
        thing for thing in alone if all(abs(at - third / 3) > _SURE for at in (thing.x, thing.y) for third in (1, 2))
    ]
    if not sure:
        return None
    thing = random.choice(sure)
    return Question("where", f"Where is the {_named(thing).text()}?", place(thing))


def _larger(alone: Sequence[Thing], random: Random) -> Question | None:
    pairs = [
        (one, other) for one in alone for other in alone if one.w > _CLEARLY * other.w and one.h > _CLEARLY * other.h
    ]
    if not pairs:
        return None
    larger, smaller = random.choice(pairs)
    first, second = random.sample([larger, smaller], 2)
    text = f"Which is larger, the {_named(first).text()} or the {_named(second).text()}?"
    return Question("which", text, f"the {_named(larger).text()}")


def _digit(scene: Scene, random: Random) -> Question | None:
    digits = Label(None, "digit").among(scene.things)
    once = [thing for thing in digits if len(_named(thing).among(digits)) == 1]
    if len(digits) == 1 and random.random() < 0.5:
        return Question("digit", random.choice(["What digit is shown?", "Read the digit."]), digits[0].kind)
    if not once:
        return None
    thing = random.choice(once)
    return Question("digit", f"What is the {thing.colour} digit?", thing.kind)


def _named(thing: Thing) -> Label:
    return Label(thing.colour, thing.noun)


def _article(word: str) -> str:
    return "an" if word[0] in "aeio" else "a"


def _at(where: str) -> str:
    if where == "centre":
        return "in the centre"
    return f"on the {where}" if where in ("left", "right") else f"at the {where}"


def _grouped(things: Sequence[Thing]) -> list[str]:
    counts = Counter((thing.colour, thing.kind) for thing in things)
    singles = {(thing.colour, thing.kind): phrase(thing) for thing in things}
    return [
        singles[look] if count == 1 else f"{count} {Label(*look).text(plural=True)}" for look, count in counts.items()
    ]


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
