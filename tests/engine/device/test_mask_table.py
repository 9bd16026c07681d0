"""Masks that stay on the device: each row has the mask of its own text, however many states there are."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stoop_worker.engine.device import mask_table
from stoop_worker.engine.device.batch import RowLimits
from stoop_worker.engine.device.mask_table import MaskTable
from stoop_worker.engine.device.penalties import TokenCounts
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.grammars.masks import Masks
from stoop_worker.engine.request import Grammar
from stoop_worker.models.loading.tokenizer import Tokenizer
from tests.support.tiny_decoder import QWEN_TEMPLATE, VOCABULARY, write_language

CPU = torch.device("cpu")
CAPACITY = 6
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"type": "string"}}}
JSON = Grammar(schema=json.dumps(SCHEMA | {"required": ["a", "b"]}))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("language")
    write_language(folder, QWEN_TEMPLATE)
    return Tokenizer.read(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Iterator[Grammars]:
    yield Grammars(tokenizer.document, size=VOCABULARY, ends=[tokenizer.specials["<|im_end|>"]])


class Counted(Masks):
    """Counts the masks that are computed."""

    computed = 0

    def fill(self, constraints: Sequence[Constraint], masks_NW: npt.NDArray[np.int32]) -> None:
        self.computed += len(constraints)
        super().fill(constraints, masks_NW)


def table_of(masks: Masks) -> MaskTable:
    return MaskTable(CAPACITY, RowLimits(masks, TokenCounts(1, VOCABULARY, CPU), VOCABULARY), CPU)


def started(grammars: Grammars, grammar: Grammar = JSON) -> Constraint:
    constraint = grammars.start(grammar)
    assert constraint is not None
    return constraint


def rows_of(table: MaskTable) -> list[list[int] | None]:
    """Return the allowed ids of each row, None for all."""
    found = table.on_device(CAPACITY)
    masks_NW, rows = found.masks_NW.numpy(), found.rows_R.tolist()
    bits_NV = np.unpackbits(np.ascontiguousarray(masks_NW).view(np.uint8), axis=1, bitorder="little")
    return [None if row < 0 else np.flatnonzero(bits_NV[row]).tolist() for row in rows]


def own(constraint: Constraint) -> list[int]:
    row = np.zeros(-(-VOCABULARY // 32), dtype=np.int32)
    constraint.matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize("kept", [1, 5, 1000])
def test_every_row_has_its_own_mask_in_every_step(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(mask_table, "_KEPT", kept)
    random, table = Random(3), table_of(Masks())
    free = Grammar(regex="([ab]c?)+")
    texts = [started(grammars) for _ in range(CAPACITY)]
    for _ in range(300):
        rows = sorted(random.sample(range(CAPACITY), random.randint(1, CAPACITY)))
        table.fill([texts[row] for row in rows], rows)
        masks = [own(texts[row]) for row in rows]
        found = rows_of(table)
        assert [found[row] for row in rows] == masks
        assert [found[row] for row in range(CAPACITY) if row not in rows] == [None] * (CAPACITY - len(rows))
        for row, allowed in zip(rows, masks, strict=True):
            if not texts[row].take(random.choice(allowed)):
                texts[row] = started(grammars, random.choice((JSON, JSON, free)))


def test_texts_in_states_of_earlier_ones_need_no_new_masks(grammars: Grammars, tokenizer: Tokenizer) -> None:
    masks = Counted()
    table = table_of(masks)
    texts = ("cat", "dog"), ("bee", "ant")
    computed = []
    for pair in texts:
        constraints = [started(grammars) for _ in pair]
        for characters in zip(*(json.dumps({"a": text, "b": "x"}) for text in pair), strict=True):
            table.fill(constraints, (0, 1))
            for constraint, character in zip(constraints, characters, strict=True):
                constraint.take(tokenizer.tokenize(character)[0])
        computed.append(masks.computed)
    assert computed[0] > 0 and computed[1] == computed[0]


def broken(grammars: Grammars) -> Constraint:
    """Return a text that is in its first state by name, and has reached a bound on the work of its grammar."""
    constraint = started(grammars)
    assert not constraint.matcher.consume_token(VOCABULARY - 1)
    return constraint


def test_the_mask_of_a_text_that_is_broken_is_not_that_of_later_ones(grammars: Grammars) -> None:
    table, sound = table_of(Masks()), started(grammars)
    table.fill([broken(grammars)], [0])
    table.fill([sound], [0])
    assert rows_of(table)[0] == own(sound)


def test_the_mask_of_a_text_that_is_broken_is_not_that_of_others_in_its_step(grammars: Grammars) -> None:
    table, passing = table_of(Masks()), started(grammars, Grammar(regex="[ab]+"))
    texts = [broken(grammars), started(grammars), passing, broken(grammars), started(grammars)]
    assert texts[0].state == texts[1].state
    for _ in range(2):  # the second time, none is new
        table.fill(texts, range(5))
        assert rows_of(table)[:5] == [own(text) for text in texts]
