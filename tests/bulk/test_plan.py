import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from stoop.bulk.plan import Speed, make_plan, print_plan, probe
from stoop.bulk.row import Ask, Row
from stoop.errors import ConfigError, InvalidJob
from stoop_schemas.failure import Failure, FailureCode
from tests.bulk.scripted import Queue

PROBLEM = Failure.of(FailureCode.MALFORMED, "not JSON")
ASK = Ask("caption", {"length": "short"})


@dataclass
class Rows:
    given: list[Row]

    @property
    def facts(self) -> Mapping[str, Any]:
        return {}

    def rows(self) -> Iterator[Row]:
        yield from self.given

    def count(self) -> int:
        return len(self.given)


SOURCE = Rows(
    [
        Row("1", image="s3://photos/a.jpg", bytes=3_000_000),
        Row("2", image=b"12345"),
        Row("3", image="s3://photos/b.jpg"),
        Row("4", problem=PROBLEM),
    ]
)


def printed(plan: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_plan(console, plan)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_plan_sums_up_the_known_sizes_and_problems() -> None:
    plan = make_plan(SOURCE, ASK, None)
    assert (plan.rows, plan.problems, plan.sized, plan.bytes) == (4, 1, 2, 3_000_005)
    assert 3 * 730 < plan.input_tokens < 3 * 760
    assert plan.output_tokens == 3 * 25
    assert (plan.rate, plan.seconds) == (None, None)
    text = printed(plan)
    assert "4, 1 of them no jobs" in text
    assert "3.0 MB, and 1 images of unknown size" in text
    assert "not known: give --rate" in text


def test_malformed_rows_are_counted_and_the_first_is_reported() -> None:
    junk = [Row("1", fields={"custom_id": "a"}), Row("2", image="s3://photos/", skill="caption"), Row("3", image=b"1")]
    plan = make_plan(Rows(junk), Ask(), None)
    assert (plan.rows, plan.problems, plan.sized, plan.input_tokens) == (3, 3, 0, 0)
    assert plan.problem == "1: the row names no skill: give --skill"
    assert make_plan(Rows(junk), Ask("detect"), None).problem == "1: detect needs an object to look for: give `object`"
    assert make_plan(Rows(junk), Ask("caption"), None).problems == 2
    hostile = printed(make_plan(Rows([Row("[red]\x1b[2J", skill="dance")]), Ask(), None))
    assert "1, 1 of them no jobs" in hostile
    assert "[red]" in hostile
    assert "\x1b" not in hostile


def test_a_plan_estimates_time_from_a_rate_and_uses_measured_tokens() -> None:
    plan = make_plan(SOURCE, ASK, Speed(0.5, "as given"))
    assert plan.seconds == 6
    assert "about 6 s" in printed(plan)
    measured = make_plan(SOURCE, ASK, Speed(3.0, "measured", 740.0, 11.0))
    assert (measured.input_tokens, measured.output_tokens, measured.measured) == (2220, 33, True)
    assert "3 images/s (measured)" in printed(measured)


def test_a_limit_on_tokens_bounds_the_estimate() -> None:
    asked = Ask("caption", {"length": "long"}, {"max_tokens": 10})
    assert make_plan(SOURCE, asked, None).output_tokens == 30


def test_only_the_first_rows_are_planned_if_no_more_are_wanted() -> None:
    assert make_plan(SOURCE, ASK, None, most=2).rows == 2


async def test_a_probe_runs_the_first_rows() -> None:
    queue = Queue()
    speed = await probe(Rows([Row("0", problem=PROBLEM), *SOURCE.given]), queue, ASK, lane="bulk", rows=3)
    assert sum(queue.runs.values()) == 2
    assert (speed.input_tokens, speed.output_tokens) == (740, 3)
    assert speed.rate > 0


async def test_a_probe_without_rows_or_a_skill_is_refused() -> None:
    with pytest.raises(ConfigError, match="no row to measure"):
        await probe(Rows([]), Queue(), ASK, lane="bulk", rows=3)
    with pytest.raises(InvalidJob, match="names no skill"):
        await probe(SOURCE, Queue(), Ask(), lane="bulk", rows=3)
