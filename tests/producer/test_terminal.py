"""The output of others' text to a terminal."""

import re

import pytest

from stoop.terminal import legible, one_line
from tests.project.modules import ROOT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 犬 [b]", "plain ünïcode 犬 [b]"),
        ("two\nlines\tand é 猫 👋", "two\nlines\tand é 猫 👋"),
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("a\r\x08\x00\x7f", "a␍␈␀␡"),
        ("\x9b2J", r"\x9b2J"),
        ("evil\u202etxt.exe \u2066x\u2069", r"evil\u202etxt.exe \u2066x\u2069"),
        ("half a pair \ud83d", r"half a pair \ud83d"),
        ("a\u2028b", r"a\u2028b"),
    ],
)
def test_no_character_commands_the_terminal(text: str, shown: str) -> None:
    assert legible(text) == shown
    shown.encode()


@pytest.mark.parametrize("text", ["👩\u200d👧", "می\u200cخواهم", "שלום\u200f!"])
def test_words_and_pictures_that_need_a_joiner_keep_it(text: str) -> None:
    assert legible(text) == one_line(text) == text


def test_one_line_is_one_line_and_can_be_cut() -> None:
    assert one_line("a\r\nforged\tline\x1b") == "a␍␊forged␉line␛"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"
    assert one_line(7) == "7"


def test_there_is_one_implementation() -> None:
    signs = re.compile(r"0x2400|unicode_escape|unicodedata")
    sources = (ROOT / "producer" / "stoop").rglob("*.py")
    assert [path.name for path in sources if signs.search(path.read_text("utf-8"))] == ["terminal.py"]
