"""The rules by which a Whisper draws ids, on the device, for all rows at once: nothing waits for the device.

R rows, V vocabulary. The numbers of a row's rule, in the order of `Rule`, come from its skill.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from stoop_worker.models.whisper.vocabulary import Vocabulary

__all__ = ["NONE", "Mode", "Rule", "Rules"]

NONE = -1
"""An id that has not been drawn."""


class Mode(IntEnum):
    """The kind of the next id: a language, text, or text with timestamps."""

    LANGUAGE = 0
    TEXT = 1
    TIMED = 2


class Rule(NamedTuple):
    """The ids drawn so far: the `last` id, the one `before` it, and the last timestamp; or `NONE`.

    With `pending` 1, one more id was drawn than these, which is still in the row's seat.
    """

    mode: int
    before: int = NONE
    last: int = NONE
    stamp: int = NONE
    pending: int = 0


@dataclass(frozen=True, slots=True)
class _Drawn:
    """(R,) each, as in `Rule`."""

    before: Tensor
    last: Tensor
    stamp: Tensor


class Rules:
    """The rules of one vocabulary; the tables are on the device."""

    def __init__(self, vocabulary: Vocabulary, size: int, latest_start: int, device: torch.device) -> None:
        """Make the tables for `size` ids; the first timestamp is at most `latest_start` steps."""
        self._ids = vocabulary
        self._latest = vocabulary.first_stamp + latest_start
        self._closed_MV = torch.zeros(len(Mode), size, dtype=torch.bool, device=device)
        self._closed_first_V = _table(vocabulary.suppressed_first, size, device)
        if vocabulary.languages:
            self._closed_MV[Mode.LANGUAGE] = ~_table(vocabulary.languages.values(), size, device)
        self._closed_MV[Mode.TEXT] = _table(vocabulary.suppressed, size, device)
        self._closed_MV[Mode.TIMED] = _table((*vocabulary.suppressed, vocabulary.no_stamps), size, device)
        self._numbers_V = torch.arange(size, device=device)

    def apply(self, logits_RV: Tensor, rules_RK: Tensor, newest_R: Tensor) -> Tensor:
        """Return the logits with minus infinity for each id that a row may not draw.

        `newest_R` are the ids in the rows' seats, which count for rows whose rule is pending.
        """
        mode_R, drawn = rules_RK[:, 0], self._drawn(rules_RK, newest_R)
        first_R1 = ((drawn.last == NONE) & (mode_R != Mode.LANGUAGE))[:, None]
        closed_RV = self._closed_MV[mode_R] | (self._closed_first_V & first_R1)
        closed_RV |= self._closed_by_stamps(mode_R, drawn)
        logits_RV = logits_RV.masked_fill(closed_RV, float("-inf"))
        texts_RV, stamps_RV = logits_RV[:, : self._ids.first_stamp], logits_RV[:, self._ids.first_stamp :]
        # a timestamp is due if all of them together are likelier than any text
        due_R = (mode_R == Mode.TIMED) & (stamps_RV.logsumexp(dim=-1) > texts_RV.amax(dim=-1))
        texts_RV.masked_fill_(due_R[:, None], float("-inf"))
        return logits_RV

    def no_speech(self, logits_RV: Tensor) -> Tensor:
        """Return the probability of no speech, (R,), which is valid only for rows that read the start."""
        return logits_RV.softmax(dim=-1)[:, self._ids.no_speech]

    def _drawn(self, rules_RK: Tensor, newest_R: Tensor) -> _Drawn:
        _, before_R, last_R, stamp_R, pending_R = rules_RK.unbind(1)
        pending_R = pending_R > 0
        newer_R = pending_R & (newest_R >= self._ids.first_stamp)
        return _Drawn(
            before=torch.where(pending_R, last_R, before_R),
            last=torch.where(pending_R, newest_R, last_R),
            stamp=torch.where(newer_R, newest_R, stamp_R),
        )

    def _closed_by_stamps(self, mode_R: Tensor, drawn: _Drawn) -> Tensor:
        """Return the ids, (R, V), that a row with timestamps may not draw because of its earlier ones.

        Timestamps come in pairs, at the beginning and between segments; they never decrease, and a segment has a
        length. The first id is a timestamp, and not a late one.
        """
        ids = self._ids
        first_R = drawn.last == NONE
        after_stamp_R = drawn.last >= ids.first_stamp
        after_pair_R = after_stamp_R & ((drawn.before >= ids.first_stamp) | (drawn.before == NONE))
        unpaired_R = after_stamp_R & ~after_pair_R  # the second of a pair may follow, at the same time
        lowest_R = torch.where(drawn.stamp == NONE, ids.first_stamp, drawn.stamp + (~unpaired_R).long())
        lowest_R = torch.where(after_pair_R, ids.last_stamp + 1, lowest_R)
        highest_R = torch.where(first_R, self._latest, ids.last_stamp)
        texts_from_R = torch.where(first_R, ids.first_stamp, torch.where(unpaired_R, ids.end, 0))
        is_text_V = self._numbers_V < ids.first_stamp
        early_RV = self._numbers_V < torch.where(is_text_V, texts_from_R[:, None], lowest_R[:, None])
        return (early_RV | (self._numbers_V > highest_R[:, None])) & (mode_R == Mode.TIMED)[:, None]


def _table(ids: object, size: int, device: torch.device) -> Tensor:
    table_V = torch.zeros(size, dtype=torch.bool)
    table_V[torch.tensor(sorted(ids), dtype=torch.int64)] = True  # type: ignore[call-overload]
    return table_V.to(device)
