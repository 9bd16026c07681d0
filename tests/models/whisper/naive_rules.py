"""The rules of drawing in plain code, row by row over lists, as a reader of the paper would write them."""

from collections.abc import Sequence
from math import exp, inf, log

from stoop_worker.models.whisper.rules import Mode
from stoop_worker.models.whisper.vocabulary import Vocabulary

__all__ = ["allowed"]


def allowed(scores: Sequence[float], drawn: Sequence[int], mode: Mode, ids: Vocabulary, latest: int) -> set[int]:
    """Return the ids that may be drawn after those `drawn`; the first timestamp is at most `latest` steps."""
    if mode is Mode.LANGUAGE:
        return set(ids.languages.values())
    found = set(range(len(scores))) - ids.suppressed - (set() if drawn else ids.suppressed_first)
    if mode is Mode.TEXT:
        return found
    found = _in_turn(found - {ids.no_stamps}, drawn, ids, latest)
    stamps = [scores[token] for token in found if token >= ids.first_stamp]
    likeliest = max((scores[token] for token in found if token < ids.first_stamp), default=-inf)
    together = log(sum(exp(score) for score in stamps)) if stamps else -inf
    return {token for token in found if token >= ids.first_stamp} if together > likeliest else found


def _in_turn(found: set[int], drawn: Sequence[int], ids: Vocabulary, latest: int) -> set[int]:
    if not drawn:
        return {token for token in found if ids.first_stamp <= token <= ids.first_stamp + latest}
    stamps = [token for token in drawn if token >= ids.first_stamp]
    after_stamp = drawn[-1] >= ids.first_stamp
    paired = len(drawn) < 2 or drawn[-2] >= ids.first_stamp
    if after_stamp and paired:
        found = {token for token in found if token < ids.first_stamp}
    elif after_stamp:
        found = {token for token in found if token >= ids.end}
    if stamps:
        least = stamps[-1] if after_stamp and not paired else stamps[-1] + 1
        found = {token for token in found if token < ids.first_stamp or token >= least}
    return found
