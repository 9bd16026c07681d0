"""Plans of windows: the sentences, their times, and the text that the model must write."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from deploy.demo_hearing.bank import Bank, Clip

__all__ = ["RATE", "STATE", "Plan", "Planner"]

RATE = 16_000
STATE = 0.02
"""Seconds of one state of the encoder, and of one step of the timestamps."""

_Span = tuple[int, int]

_NOWHERE = (-1, -1)
_GERMAN, _SILENT, _WHOLE, _TIMED, _HISTORY = 0.4, 0.04, 0.45, 0.75, 0.4
_TRANSLATED = {"de": 0.3, "en": 0.06}
_LAST_STAMP = 1500


@dataclass(slots=True)
class Plan:
    """One window: (bank offset, size, speed, gain, first sample) of each clip, its ids and where each is heard.

    `losses` is True for ids to learn. `spans` are the first state of each id's word and the one after it, or (-1, -1).
    `heard` are such spans of spoken words with the first id of each. `content` is the length in samples.
    """

    content: int = 0
    clips: list[tuple[int, int, float, float, int]] = field(default_factory=list)
    heard: list[tuple[int, int, int]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    losses: list[bool] = field(default_factory=list)
    spans: list[_Span] = field(default_factory=list)

    def write(self, ids: Iterable[int], spans: Iterable[_Span], *, learned: bool = True) -> None:
        """Append ids."""
        before = len(self.ids)
        self.ids += ids
        self.spans += spans
        self.losses += [learned] * (len(self.ids) - before)

    def tell(self, ids: list[int]) -> None:
        """Append ids that are not learned."""
        self.write(ids, [_NOWHERE] * len(ids), learned=False)


@dataclass(frozen=True, slots=True)
class _Said:
    """A clip at a place; `whole` is False if the window ends within it."""

    clip: Clip
    at: float
    speed: float
    whole: bool

    @property
    def end(self) -> float:
        return self.at + self.clip.size / RATE / self.speed

    def spans(self) -> list[_Span]:
        """Return the states of each id's word."""
        starts = self.clip.starts
        if not starts:
            return [(self.state(0), self.state(self.clip.size))] * len(self.clip.ids)
        ends = [min((each for each in starts if each > start), default=self.clip.size) for start in starts]
        places = ((self.state(start), self.state(end)) for start, end in zip(starts, ends, strict=True))
        return [(start, max(start + 1, end)) for start, end in places]

    def state(self, sample: int) -> int:
        return round((self.at + sample / RATE / self.speed) / STATE)


class Planner:
    """Draws windows from a bank."""

    def __init__(self, bank: Bank) -> None:
        self._clips: dict[str, list[Clip]] = {
            language: [clip for clip in bank.clips if clip.language == language] for language in ("en", "de")
        }
        self._controls = bank.controls

    def draw(self, random: Random, longest: float) -> Plan:
        """Draw a window of at most this many seconds."""
        language = "de" if random.random() < _GERMAN else "en"
        seconds = longest if random.random() < _WHOLE else random.uniform(min(1.0, longest), longest)
        plan = Plan()
        said = [] if random.random() < _SILENT else self._say(language, seconds, longest, random)
        last = said[-1].end + random.uniform(0.0, 1.0) if said else seconds
        plan.content = round((longest if seconds == longest else min(longest, max(last, 0.3))) * RATE)
        for each in said:
            gain, place = 10 ** random.uniform(-0.25, 0.1), round(each.at * RATE)
            plan.clips.append((each.clip.offset, each.clip.size, each.speed, gain, place))
            plan.heard += _heard(each)
        if random.random() < _HISTORY:
            plan.tell(self._history(language, random))
        self._write(plan, said, language, random)
        return plan

    def _say(self, language: str, seconds: float, longest: float, random: Random) -> list[_Said]:
        """Place clips one after another; only a window of the full length may cut one."""
        said: list[_Said] = []
        at = random.choice((0.0, random.uniform(0, 0.3), random.uniform(0, 1.5)))
        pause = random.choice((0.25, 0.5, 1.0))
        while at + 0.06 < seconds:
            one = _Said(random.choice(self._clips[language]), at, random.uniform(0.86, 1.16), whole=True)
            if one.end > longest:
                if seconds == longest:
                    said.append(_Said(one.clip, at, one.speed, whole=False))
                break
            said.append(one)
            if seconds < longest and random.random() < 0.05:
                break
            at = one.end + (random.uniform(2, 7) if random.random() < 0.04 else random.uniform(0.1, pause))
        return said

    def _write(self, plan: Plan, said: list[_Said], language: str, random: Random) -> None:
        """Write the transcript; a cut sentence has only its start, so that the next window begins there."""
        controls = self._controls
        translates = random.random() < _TRANSLATED[language]
        timed = random.random() < _TIMED
        plan.tell([controls["startoftranscript"]])
        # the language, or in silence the id that says so, which the training puts in its place
        plan.write([controls[language]], [_NOWHERE])
        plan.tell([controls["translate" if translates else "transcribe"]])
        if not timed:
            plan.tell([controls["notimestamps"]])
        for each in said:
            start, end = each.state(0), each.state(each.clip.size)
            if timed:
                plan.write([controls["0.00"] + start], [(start, start + 2)])
            if each.whole and translates:
                plan.write(each.clip.translation, [(start, end)] * len(each.clip.translation))
            elif each.whole:
                plan.write(each.clip.ids, each.spans())
            if timed and each.whole:
                plan.write([controls["0.00"] + end], [(end - 2, end)])
        if timed and not said:
            plan.write([controls["0.00"]], [_NOWHERE])
        plan.write([controls["endoftext"]], [_NOWHERE])

    def _history(self, language: str, random: Random) -> list[int]:
        """Return the text before the window."""
        ids, at, timed = [self._controls["startofprev"]], 0, random.random() < 0.8
        zero = self._controls["0.00"]
        for _ in range(random.randint(1, 10)):
            clip = random.choice(self._clips[language])
            end = at + clip.size // 320
            if end > _LAST_STAMP:
                break
            ids += [zero + at, *clip.ids, zero + end] if timed else clip.ids
            at = end + random.randint(5, 50)
        return ids


def _heard(said: _Said) -> list[tuple[int, int, int]]:
    """Return the first id of each word, if the times of words are known."""
    if not said.clip.starts:
        return []
    spans = said.spans()
    return [
        (*span, token)
        for number, (span, token) in enumerate(zip(spans, said.clip.ids, strict=True))
        if not number or spans[number - 1] != span
    ]
