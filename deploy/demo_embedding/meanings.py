"""Meanings, each with several sentences for it in English and in German.

A meaning is a set of features; the more of them two meanings share, the nearer their sentences should be.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

__all__ = ["Meaning", "draw"]

_NUMBERS = (
    ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"), ("six", "sechs"), ("seven", "sieben"),
    ("eight", "acht"), ("nine", "neun"), ("ten", "zehn"),
)  # fmt: skip
_COLOURS = (
    ("red", "rote"), ("yellow", "gelbe"), ("green", "grüne"), ("blue", "blaue"), ("white", "weiße"),
    ("black", "schwarze"),
)  # fmt: skip
_SHAPES = (
    ("circles", "Kreise"), ("squares", "Quadrate"), ("triangles", "Dreiecke"), ("stars", "Sterne"),
    ("crosses", "Kreuze"), ("rings", "Ringe"),
)  # fmt: skip
_OPENED = (("door", "die Tür"), ("window", "das Fenster"), ("box", "die Kiste"), ("gate", "das Tor"))
_SWITCHED = (("light", "das Licht"), ("music", "die Musik"), ("radio", "das Radio"), ("heating", "die Heizung"))
_ANIMALS = (
    ("cat", "die Katze"), ("dog", "der Hund"), ("horse", "das Pferd"), ("bird", "der Vogel"), ("cow", "die Kuh"),
    ("sheep", "das Schaf"),
)  # fmt: skip
_DEEDS = (
    ("sleeping", "sleeps", "schläft"), ("eating", "eats", "frisst"), ("running", "runs", "rennt"),
    ("drinking", "drinks", "trinkt"),
)  # fmt: skip
_FOODS = (
    ("bread", "Brot"), ("soup", "Suppe"), ("cheese", "Käse"), ("rice", "Reis"), ("fish", "Fisch"), ("cake", "Kuchen"),
    ("salad", "Salat"), ("fruit", "Obst"),
)  # fmt: skip
_WEATHER = (
    ("rain", "rainy", "Regen"),
    ("snow", "snowy", "Schnee"),
    ("sun", "sunny", "Sonne"),
    ("wind", "windy", "Wind"),
)
_DAYS = (("today", "heute"), ("tomorrow", "morgen"), ("on Sunday", "am Sonntag"))
_VEHICLES = (("train", "der Zug"), ("bus", "der Bus"), ("ship", "das Schiff"), ("plane", "das Flugzeug"))


@dataclass(frozen=True, slots=True)
class Meaning:
    """The features of a meaning, of which the first is its subject, and its sentences in two languages."""

    features: tuple[str, ...]
    english: tuple[str, ...]
    german: tuple[str, ...]

    @property
    def is_held_out(self) -> bool:
        """True for one meaning in six, which is kept out of the training."""
        return zlib.crc32(" ".join(self.features).encode()) % 6 == 0


def draw(random: Random) -> Meaning:
    """Draw a meaning."""
    kinds: tuple[Callable[[Random], Meaning], ...] = (
        _scene,
        _scene,
        _opening,
        _switching,
        _animal,
        _food,
        _weather,
        _trip,
    )
    return random.choice(kinds)(random)


def _scene(random: Random) -> Meaning:
    number, german_number = random.choice(_NUMBERS)
    colour, german_colour = random.choice(_COLOURS)
    shape, german_shape = random.choice(_SHAPES)
    english, german = f"{number} {colour} {shape}", f"{german_number} {german_colour} {german_shape}"
    return Meaning(
        ("picture", number, colour, shape),
        (
            f"There are {english}.",
            f"The picture shows {english}.",
            f"I can see {english}.",
            f"{english} in an image",
            f"{shape.capitalize()} that are {colour}: {number}.",
        ),
        (f"Es gibt {german}.", f"Das Bild zeigt {german}.", f"Ich sehe {german}.", f"{german} in einem Bild"),
    )


def _opening(random: Random) -> Meaning:
    thing, german = random.choice(_OPENED)
    verb, done, german_verb, german_done = random.choice(
        (("open", "opened", "öffne", "öffnen"), ("close", "closed", "schließe", "schließen"))
    )
    return Meaning(
        ("house", verb, thing),
        (
            f"{verb.capitalize()} the {thing}.",
            f"Please {verb} the {thing}.",
            f"Could you {verb} the {thing}?",
            f"The {thing} should be {done}.",
        ),
        (
            f"{german_verb.capitalize()} {german}.",
            f"Bitte {german_verb} {german}.",
            f"Kannst du {german} {german_done}?",
        ),
    )


def _switching(random: Random) -> Meaning:
    thing, german = random.choice(_SWITCHED)
    state, german_state, short = random.choice((("on", "ein", "an"), ("off", "aus", "aus")))
    return Meaning(
        ("house", f"switch {state}", thing),
        (
            f"Turn the {thing} {state}.",
            f"Switch {state} the {thing}.",
            f"Please turn {state} the {thing}.",
            f"I want the {thing} {state}.",
        ),
        (f"Schalte {german} {german_state}.", f"Mach {german} {short}.", f"Bitte schalte {german} {german_state}."),
    )


def _animal(random: Random) -> Meaning:
    animal, german = random.choice(_ANIMALS)
    doing, does, german_does = random.choice(_DEEDS)
    return Meaning(
        ("animals", animal, doing),
        (
            f"The {animal} is {doing}.",
            f"A {doing} {animal}.",
            f"The {animal} {does}.",
            f"Our {animal} {does} now.",
        ),
        (
            f"{german.capitalize()} {german_does}.",
            f"Jetzt {german_does} {german}.",
            f"{german.capitalize()} {german_does} gerade.",
        ),
    )


def _food(random: Random) -> Meaning:
    food, german = random.choice(_FOODS)
    if random.random() < 0.5:
        return Meaning(
            ("food", "order", food),
            (
                f"I would like some {food}.",
                f"Bring me {food}, please.",
                f"Could I have {food}?",
                f"One order of {food}.",
            ),
            (f"Ich hätte gern {german}.", f"Bringen Sie mir bitte {german}.", f"Ich möchte {german} bestellen."),
        )
    return Meaning(
        ("food", "cook", food),
        (f"How do I make {food}?", f"A recipe for {food}.", f"How is {food} prepared?", f"Cooking {food} at home."),
        (f"Wie macht man {german}?", f"Ein Rezept für {german}.", f"Wie wird {german} zubereitet?"),
    )


def _weather(random: Random) -> Meaning:
    weather, adjective, german = random.choice(_WEATHER)
    day, german_day = random.choice(_DAYS)
    return Meaning(
        ("weather", weather, day),
        (
            f"There will be {weather} {day}.",
            f"It is going to be {adjective} {day}.",
            f"The forecast for {day.removeprefix('on ')} is {weather}.",
            f"{day.capitalize()} it gets {adjective}.",
        ),
        (
            f"Es gibt {german_day} {german}.",
            f"{german_day.capitalize()} kommt {german}.",
            f"Der Wetterbericht sagt {german_day} {german} voraus.",
        ),
    )


def _trip(random: Random) -> Meaning:
    vehicle, german = random.choice(_VEHICLES)
    time, german_time = random.choice(_NUMBERS)
    return Meaning(
        ("travel", vehicle, time),
        (
            f"The {vehicle} leaves at {time}.",
            f"At {time} the {vehicle} departs.",
            f"Departure of the {vehicle}: {time} o'clock.",
            f"We take the {vehicle} at {time}.",
        ),
        (
            f"{german.capitalize()} fährt um {german_time} ab.",
            f"Um {german_time} fährt {german}.",
            f"Abfahrt um {german_time}: {german}.",
        ),
    )
