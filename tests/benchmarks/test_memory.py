import json
from pathlib import Path

from benchmarks.engine import memory
from benchmarks.engine.memory import Held, grown
from tests.benchmarks.conftest import Words

MB = 1 << 20


def test_growth_in_the_second_half_is_reported() -> None:
    held = [Held(1, 0, 0, 0), Held(5, 100 * MB, 200 * MB, 900 * MB)]
    assert grown([*held, Held(10, 101 * MB, 200 * MB, 990 * MB)]) == []
    assert grown([*held, Held(10, 103 * MB, 300 * MB, 999 * MB)]) == ["allocated", "reserved", "resident"]


def test_it_looks_three_times(words: Words, tmp_path: Path) -> None:
    document = memory.main(words("--requests", "40"))
    assert [held["requests"] for held in document["held"]] == [4, 20, 40]
    assert json.loads((tmp_path / "figures.json").read_text())["held"][-1]["resident"] > 50 * MB
