"""Every test that the table of faults names exists."""

import ast
import re
from functools import cache

from tests.project.modules import ROOT

TESTS = ROOT / "tests"
ROW = re.compile(r"^\| (\d+) \| .+ \| .+ \| (.+) \|$", re.M)
NAME = re.compile(r"`([\w/.]+)::(\w+)`")


def table() -> dict[str, list[tuple[str, str]]]:
    """Each fault's number, with the place and name of each test that shows it."""
    return {number: NAME.findall(shown) for number, shown in ROW.findall((TESTS / "README.md").read_text("utf-8"))}


@cache
def functions(place: str) -> set[str]:
    places = ("chaos/cases.py", "chaos/two_models.py") if place == "chaos" else (place,)
    files = [path for path in map(TESTS.joinpath, places) if path.is_file()]
    nodes = [node for path in files for node in ast.parse(path.read_text("utf-8")).body]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_all_faults_are_there_and_each_is_shown() -> None:
    assert list(table()) == list(map(str, range(1, 27)))
    assert all(table().values())


def test_each_test_that_is_named_is_there() -> None:
    named = {each for shown in table().values() for each in shown}
    assert {(place, name) for place, name in named if name not in functions(place)} == set()


def test_every_case_of_chaos_shows_some_fault() -> None:
    named = {name for shown in table().values() for place, name in shown if place == "chaos"}
    cases = {name for name in functions("chaos") if not name.startswith("_")}
    assert named == cases
