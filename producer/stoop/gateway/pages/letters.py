"""Dead letters for the dashboard: listed, grouped, and redriven or purged one by one or by their cause."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from stoop.gateway.answer import json_response
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.pages.choice import Choice
from stoop.operator.port import DeadLetter, Operator, Redriven

__all__ = [
    "LetterPage",
    "LetterView",
    "Outcome",
    "list_causes",
    "list_letters",
    "purge_letters",
    "redrive_letters",
    "view_of",
]

_FIRST_READ: Final = 200
_MOST_READ: Final = 10_000
_PAGE: Final = 100
_MOST_PURGED: Final = 1000
_SHOWN: Final = 50
_JOB_CHARACTERS: Final = 20_000
_LETTER: Final = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")


class LetterView(msgspec.Struct, frozen=True):
    """One dead letter; `job` is the text of its job as it came, and only shown with a single letter."""

    letter: str
    job_id: str
    lane: str
    attempt: int
    code: str
    message: str
    at: int
    tenant: str = ""
    worker: str = ""
    crashes: int = 0
    job: str = ""


class LetterPage(msgspec.Struct, frozen=True):
    """Some dead letters, newest first; `before` is where the next page begins, null after the last."""

    letters: list[LetterView]
    before: str | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The number of letters chosen, and their fates: `gone` no longer existed, and `lives` already run again."""

    matched: int
    redriven: int = 0
    purged: int = 0
    gone: int = 0
    lives: int = 0


def view_of(letter: DeadLetter) -> LetterView:
    """Return the whole letter."""
    job = letter.packed.decode(errors="backslashreplace")[:_JOB_CHARACTERS]
    return msgspec.structs.replace(_view(letter), worker=letter.worker, crashes=letter.crashes, job=job)


async def list_letters(call: Call) -> Response:
    """Answer `GET /v1/dead`, with the filters `code`, `message` and `search`, beginning after the letter `before`."""
    asked = call.request.query_params
    before = asked.get("before")
    if before is not None and not _LETTER.fullmatch(before):
        raise ApiError(400, "invalid_value", "before must be a letter's name", param="before")
    chosen = Choice(code=asked.get("code"), message=asked.get("message"), search=asked.get("search"))
    found = [letter async for letter in _covered(call.gateway.operator, chosen, before, _SHOWN + 1)]
    views = [_view(letter) for letter in found[:_SHOWN]]
    return json_response(call, LetterPage(views, views[-1].letter if len(found) > _SHOWN else None))


async def list_causes(call: Call) -> Response:
    """Answer `GET /v1/dead/causes`."""
    return json_response(call, await call.gateway.causes.look())


async def redrive_letters(call: Call) -> Response:
    """Answer `POST /v1/dead/redrive`: send letters back to their lanes, with attempts counted from 0."""
    chosen = await _choice(call)
    if chosen.dry_run:
        return await _counted(call, chosen)
    verdicts: Counter[Redriven] = Counter()
    async for letters in _pages(call.gateway.operator, chosen):
        verdicts.update(await call.gateway.operator.redrive(letters))
    lives, gone = verdicts[Redriven.LIVES], verdicts[Redriven.GONE]
    redriven = verdicts[Redriven.YES]
    call.gateway.causes.forget()
    call.note(redriven=redriven)
    return json_response(call, Outcome(matched=verdicts.total(), redriven=redriven, gone=gone, lives=lives))


async def purge_letters(call: Call) -> Response:
    """Answer `POST /v1/dead/purge`: delete letters for ever."""
    chosen = await _choice(call)
    if chosen.dry_run:
        return await _counted(call, chosen)
    matched = purged = 0
    async for letters in _named_or_covered(call.gateway.operator, chosen):
        matched += len(letters)
        purged += await call.gateway.operator.purge(letters)
    call.gateway.causes.forget()
    call.note(purged=purged)
    return json_response(call, Outcome(matched=matched, purged=purged, gone=matched - purged))


async def _choice(call: Call) -> Choice:
    chosen = await read_json(call, Choice)
    if sum((chosen.letters is not None, chosen.filters, chosen.all)) != 1:
        raise ApiError(400, "invalid_value", "give letters, or a filter (code, message, search), or all: true")
    if not all(_LETTER.fullmatch(letter) for letter in chosen.letters or ()):
        raise ApiError(400, "invalid_value", "letters must be names such as 1795000000000-0", param="letters")
    return chosen


async def _counted(call: Call, chosen: Choice) -> Response:
    if chosen.letters is not None:
        return json_response(call, Outcome(matched=len(await _named(call.gateway.operator, chosen.letters))))
    if chosen.all:
        return json_response(call, Outcome(matched=(await call.gateway.operator.status(())).dead))
    count = 0
    async for _ in _covered(call.gateway.operator, chosen):
        count += 1
    return json_response(call, Outcome(matched=count))


async def _named(operator: Operator, letters: Sequence[str]) -> list[DeadLetter]:
    found = [await operator.find(letter) for letter in dict.fromkeys(letters)]
    return [letter for letter in found if letter is not None]


async def _covered(
    operator: Operator, chosen: Choice, before: str | None = None, most: int | None = None
) -> AsyncIterator[DeadLetter]:
    """Yield the letters that the filter finds without their jobs, newest first."""
    size = _MOST_READ if most is None else _FIRST_READ
    while letters := await operator.failures(size, before=before):
        for letter in chosen.covered(letters):
            yield letter
            most = None if most is None else most - 1
            if most == 0:
                return
        before, size = letters[-1].letter, _MOST_READ


async def _named_or_covered(operator: Operator, chosen: Choice) -> AsyncIterator[list[DeadLetter]]:
    """Yield the letters that are meant, some at a time, with or without their jobs."""
    if chosen.letters is not None:
        yield await _named(operator, chosen.letters)
        return
    before = None
    while letters := await operator.failures(_MOST_PURGED, before=before):
        before = letters[-1].letter
        yield list(chosen.covered(letters))


async def _pages(operator: Operator, chosen: Choice) -> AsyncIterator[list[DeadLetter]]:
    """Yield the whole letters that are meant, some at a time."""
    if chosen.letters is not None:
        found = await _named(operator, chosen.letters)
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]
        return
    before = None
    while letters := await operator.letters(_PAGE, before=before):
        before = letters[-1].letter
        yield list(chosen.covered(letters))


def _view(letter: DeadLetter) -> LetterView:
    return LetterView(
        letter=letter.letter,
        job_id=letter.job_id,
        lane=letter.lane,
        attempt=letter.attempt,
        code=letter.code,
        message=letter.message,
        at=letter.at,
        tenant=letter.tenant,
    )
