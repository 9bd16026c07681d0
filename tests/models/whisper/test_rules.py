"""The rules of drawing, for all rows at once, against the same rules written row by row."""

import pytest
import torch
from torch import Tensor

from stoop_worker.models.whisper.family import WhisperFamily
from stoop_worker.models.whisper.rules import NONE, Mode, Rule
from tests.models.whisper.naive_rules import allowed

TEXT = (40, 41, 42)


def histories(family: WhisperFamily) -> list[tuple[int, ...]]:
    """Every beginning of three ids: none, text, an early, a late and the last timestamp, in any order."""
    ids = family._model.vocabulary
    kinds = (40, ids.first_stamp, ids.first_stamp + 700, ids.last_stamp)
    return [
        (),
        *((one,) for one in kinds),
        *((one, two) for one in kinds for two in kinds),
        *((one, two, three) for one in kinds for two in kinds for three in kinds),
    ]


def rule_of(drawn: tuple[int, ...], mode: Mode, first_stamp: int, *, pending: bool) -> Rule:
    known = drawn[:-1] if pending else drawn
    before, last = (NONE, NONE, *known)[-2:]
    stamps = [token for token in known if token >= first_stamp]
    return Rule(mode, before, last, stamps[-1] if stamps else NONE, int(pending))


def scores_of(family: WhisperFamily, rows: int, *, stamps: float) -> Tensor:
    random = torch.Generator().manual_seed(7)
    found = torch.randn(rows, family.spec.vocab_size, generator=random, dtype=torch.float64)
    found[:, family._model.vocabulary.first_stamp :] += stamps
    return found


@pytest.mark.parametrize("stamps", [-20.0, 0.0])
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("mode", [Mode.TIMED, Mode.TEXT, Mode.LANGUAGE])
def test_each_row_may_draw_the_tokens_that_its_own_rules_allow(
    family: WhisperFamily, mode: Mode, pending: bool, stamps: float
) -> None:
    ids = family._model.vocabulary
    rows = [drawn for drawn in histories(family) if drawn or not pending]
    if mode is Mode.LANGUAGE:
        rows = [()]
    scores = scores_of(family, len(rows), stamps=stamps)
    rules = torch.tensor([rule_of(drawn, mode, ids.first_stamp, pending=pending and bool(drawn)) for drawn in rows])
    seats = torch.tensor([drawn[-1] if drawn else 0 for drawn in rows])
    found = family._rules.apply(scores, rules, seats)
    for row, drawn in enumerate(rows):
        expected = allowed(scores[row].tolist(), drawn, mode, ids, latest=50)
        open_ids = found[row].isfinite().nonzero()[:, 0].tolist()
        assert set(open_ids) == expected, drawn
        assert torch.equal(found[row, open_ids], scores[row, open_ids])


def test_a_timestamp_is_due_only_where_all_of_them_together_are_likelier_than_any_text(family: WhisperFamily) -> None:
    ids = family._model.vocabulary
    scores = torch.full((2, family.spec.vocab_size), -40.0, dtype=torch.float64)
    scores[:, 40] = 0.0
    # ten of them, each less likely than the text: together 1.5 and 0.9 of it
    scores[0, ids.first_stamp + 100 : ids.first_stamp + 110] = torch.tensor(0.15).log().double()
    scores[1, ids.first_stamp + 100 : ids.first_stamp + 110] = torch.tensor(0.09).log().double()
    rules = torch.tensor([Rule(Mode.TIMED, ids.first_stamp, 41, ids.first_stamp)] * 2)
    found = family._rules.apply(scores, rules, torch.zeros(2, dtype=torch.int64))
    assert found[0, 40].isinf() and found[1, 40] == 0


def test_the_probability_of_no_speech_is_taken_before_any_rule(family: WhisperFamily) -> None:
    scores = scores_of(family, 3, stamps=0.0)
    expected = scores.softmax(dim=-1)[:, family._model.vocabulary.no_speech]
    torch.testing.assert_close(family._rules.no_speech(scores), expected)
