"""The sentences that the model learns, in English and in German."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

__all__ = ["FIXED", "Lesson", "is_held_out", "sentence"]

_NUMBERS = (
    ("zero", "null"), ("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"),
    ("six", "sechs"), ("seven", "sieben"), ("eight", "acht"), ("nine", "neun"), ("ten", "zehn"),
)  # fmt: skip
_COLOURS = (
    ("red", "rot"), ("orange", "orange"), ("yellow", "gelb"), ("green", "grün"), ("blue", "blau"), ("purple", "lila"),
    ("white", "weiß"), ("black", "schwarz"),
)  # fmt: skip
_UNINFLECTED = ("orange", "lila")


@dataclass(frozen=True, slots=True)
class _Noun:
    english: str
    english_plural: str
    german: str
    german_plural: str
    neuter: bool = False

    @property
    def the(self) -> str:
        return f"{'das' if self.neuter else 'der'}"

    @property
    def a(self) -> str:
        """The indefinite article of an object."""
        return "ein" if self.neuter else "einen"


_SHAPES = (
    _Noun("circle", "circles", "Kreis", "Kreise"),
    _Noun("square", "squares", "Quadrat", "Quadrate", neuter=True),
    _Noun("triangle", "triangles", "Dreieck", "Dreiecke", neuter=True),
    _Noun("star", "stars", "Stern", "Sterne"),
    _Noun("cross", "crosses", "Kreuz", "Kreuze", neuter=True),
    _Noun("ring", "rings", "Ring", "Ringe"),
)
_OPENED = (("door", "die Tür"), ("window", "das Fenster"), ("box", "die Kiste"), ("gate", "das Tor"))
_SWITCHED = (("light", "das Licht"), ("music", "die Musik"), ("radio", "das Radio"))
_WAYS = (("left", "links"), ("right", "rechts"), ("up", "oben"), ("down", "unten"))
_TIMES = (("seconds", "Sekunden"), ("minutes", "Minuten"), ("hours", "Stunden"))


@dataclass(frozen=True, slots=True)
class Lesson:
    """One sentence, and the same in German."""

    english: str
    german: str


FIXED = (
    Lesson("Yes.", "Ja."),
    Lesson("No.", "Nein."),
    Lesson("Yes, please.", "Ja, bitte."),
    Lesson("No, thank you.", "Nein, danke."),
    Lesson("Hello.", "Hallo."),
    Lesson("Goodbye.", "Auf Wiedersehen."),
    Lesson("Start.", "Start."),
    Lesson("Stop.", "Stopp."),
    Lesson("Please wait.", "Bitte warten."),
    Lesson("Thank you.", "Danke."),
)


def is_held_out(lesson: Lesson) -> bool:
    """Return whether a sentence is kept out of the training; one in eight of those with several words is."""
    return len(lesson.english.split()) > 2 and lesson not in FIXED and zlib.crc32(lesson.english.encode()) % 8 == 0


def sentence(random: Random) -> Lesson:
    """Draw a sentence."""
    kind: Callable[[Random], Lesson] = random.choices(_KINDS, _WEIGHTS)[0]
    return kind(random)


def _adjective(german: str, ending: str) -> str:
    return german if german in _UNINFLECTED else german + ending


def _a(english: str) -> str:
    return f"{'an' if english[0] in 'aeiou' else 'a'} {english}"


def _fixed(random: Random) -> Lesson:
    return random.choice(FIXED)


def _word(random: Random) -> Lesson:
    shape = random.choice(_SHAPES)
    words = (random.choice(_NUMBERS), random.choice(_COLOURS), random.choice(_WAYS), (shape.english, shape.german))
    english, german = random.choice(words)
    return Lesson(f"{english.capitalize()}.", f"{german.capitalize()}.")


def _series(random: Random) -> Lesson:
    chosen = random.choices(random.choice((_NUMBERS, _NUMBERS, _COLOURS)), k=random.randint(2, 4))
    english, german = (", ".join(words).capitalize() for words in zip(*chosen, strict=True))
    return Lesson(f"{english}.", f"{german}.")


def _there_are(random: Random) -> Lesson:
    number, german_number = random.choice(_NUMBERS[2:])
    colour, german = random.choice(_COLOURS)
    shape = random.choice(_SHAPES)
    inflected = _adjective(german, "e")
    return Lesson(
        f"There are {number} {colour} {shape.english_plural}.",
        f"Es gibt {german_number} {inflected} {shape.german_plural}.",
    )


def _one(random: Random) -> tuple[str, str, _Noun]:
    """Return "red circle", "einen roten Kreis" and the noun."""
    colour, german = random.choice(_COLOURS)
    shape = random.choice(_SHAPES)
    inflected = _adjective(german, "es" if shape.neuter else "en")
    return f"{colour} {shape.english}", f"{shape.a} {inflected} {shape.german}", shape


def _there_is(random: Random) -> Lesson:
    english, german, _ = _one(random)
    return Lesson(f"There is {_a(english)}.", f"Es gibt {german}.")


def _is_there(random: Random) -> Lesson:
    english, german, _ = _one(random)
    return Lesson(f"Is there {_a(english)}?", f"Gibt es {german}?")


def _how_many(random: Random) -> Lesson:
    colour, german = random.choice(_COLOURS)
    shape = random.choice(_SHAPES)
    inflected = _adjective(german, "e")
    return Lesson(
        f"How many {colour} {shape.english_plural} are there?", f"Wie viele {inflected} {shape.german_plural} gibt es?"
    )


def _where(random: Random) -> Lesson:
    colour, german = random.choice(_COLOURS)
    shape = random.choice(_SHAPES)
    inflected = _adjective(german, "e")
    return Lesson(f"Where is the {colour} {shape.english}?", f"Wo ist {shape.the} {inflected} {shape.german}?")


def _colour_of(random: Random) -> Lesson:
    colour, german = random.choice(_COLOURS)
    shape = random.choice(_SHAPES)
    if random.random() < 0.3:
        return Lesson(f"What colour is the {shape.english}?", f"Welche Farbe hat {shape.the} {shape.german}?")
    the = shape.the.capitalize()
    return Lesson(f"The {shape.english} is {colour}.", f"{the} {shape.german} ist {german}.")


def _open(random: Random) -> Lesson:
    thing, german = random.choice(_OPENED)
    verb, german_verb = random.choice((("Open", "Öffne"), ("Close", "Schließe")))
    return Lesson(f"{verb} the {thing}.", f"{german_verb} {german}.")


def _switch(random: Random) -> Lesson:
    thing, german = random.choice(_SWITCHED)
    state, german_state = random.choice((("on", "ein"), ("off", "aus")))
    return Lesson(f"Turn the {thing} {state}.", f"Schalte {german} {german_state}.")


def _go(random: Random) -> Lesson:
    way, german = random.choice(_WAYS)
    return Lesson(f"Go {way}.", f"Gehe nach {german}.")


def _wait(random: Random) -> Lesson:
    number, german_number = random.choice(_NUMBERS[2:])
    times, german_times = random.choice(_TIMES)
    return Lesson(f"Wait {number} {times}.", f"Warte {german_number} {german_times}.")


_KINDS: tuple[Callable[[Random], Lesson], ...] = (
    _fixed, _word, _series, _there_are, _there_is, _is_there, _how_many, _where, _colour_of, _open, _switch, _go, _wait,
)  # fmt: skip
_WEIGHTS = (5, 12, 16, 9, 5, 5, 6, 5, 6, 5, 5, 4, 7)
