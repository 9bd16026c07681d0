from collections.abc import AsyncGenerator

import pytest

from stoop.client.text_stream import TextStream
from stoop.errors import JobFailed, JobRestarted
from stoop_schemas.event import (
    DeltaEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    ReasoningEvent,
    RestartedEvent,
    StartedEvent,
)
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.skill import Grounding, Output, Reasoning, Skill
from tests.producer.scripted import completed

STARTED = StartedEvent(id="a", seq=0)
RESTARTED = RestartedEvent(id="a", seq=0, attempt=2)


def delta(text: str) -> Event:
    return DeltaEvent(id="a", seq=0, text=text)


def finished(text: str, reasoning: Reasoning | None = None) -> Event:
    result = completed("a", Skill.QUERY, Output(answer=text, reasoning=reasoning))
    return FinishedEvent(id="a", seq=0, result=result)


def stream(*events: Event) -> TextStream:
    async def source() -> AsyncGenerator[Event, None]:
        for event in events:
            yield event

    return TextStream("a", source())


async def pieces(*events: Event) -> list[str]:
    return [piece async for piece in stream(*events)]


async def test_pieces_are_given_as_they_come() -> None:
    assert await pieces(STARTED, delta("a "), delta("b"), finished("a b")) == ["a ", "b"]


async def test_text_that_only_the_result_has_comes_last() -> None:
    assert await pieces(delta("a "), finished("a b")) == ["a ", "b"]
    assert await pieces(finished("all at once")) == ["all at once"]


async def test_an_empty_answer_has_no_pieces() -> None:
    assert await pieces(STARTED, finished("")) == []


async def test_a_second_run_with_the_same_beginning_continues_the_first() -> None:
    events = [
        delta("two "),
        delta("red"),
        RESTARTED,
        delta("two"),
        delta(" re"),
        delta("d dogs"),
        finished("two red dogs"),
    ]
    assert await pieces(*events) == ["two ", "red", " dogs"]


async def test_a_second_run_with_another_text_raises_an_error_with_advice() -> None:
    given = stream(delta("two "), RESTARTED, delta("three"), finished("three"))
    assert await anext(given) == "two "
    with pytest.raises(JobRestarted, match="result"):
        await anext(given)


async def test_a_second_run_with_less_text_is_an_error_too() -> None:
    given = stream(delta("two dogs"), RESTARTED, delta("two"), finished("two"))
    assert await anext(given) == "two dogs"
    with pytest.raises(JobRestarted):
        await anext(given)


async def test_a_failure_is_raised_after_the_text_before_it() -> None:
    failure = Failure.of(FailureCode.ENGINE_FAULT, "out of memory")
    given = stream(delta("two"), FailedEvent(id="a", seq=0, failure=failure))
    assert await anext(given) == "two"
    with pytest.raises(JobFailed) as raised:
        await anext(given)
    assert raised.value.failure == failure


async def test_the_reasoning_is_whole_before_the_answer_and_grounded_after_it() -> None:
    grounding = [Grounding(0, 3, [(0.5, 0.5)])]
    events = [
        *(ReasoningEvent(id="a", seq=0, text=text) for text in ("dog", " here")),
        *(delta("one"), finished("one", Reasoning("dog here", grounding))),
    ]
    given = stream(*events)
    await given.skip_reasoning()
    assert given.reasoning == {"text": "dog here", "grounding": []}
    assert [piece async for piece in given] == ["one"]
    assert given.reasoning["grounding"] == [{"start_idx": 0, "end_idx": 3, "points": [(0.5, 0.5)]}]
