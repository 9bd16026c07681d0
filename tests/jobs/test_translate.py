import dataclasses

import pytest

from stoop_schemas.event import DeltaEvent, ObjectEvent, ReasoningEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.response_format import JsonObjectFormat, JsonSchema, JsonSchemaFormat, TextFormat
from stoop_schemas.skill import Box, CaptionLength, Point, Settings, Skill
from stoop_schemas.state import State
from stoop_worker.engine import request as engine
from stoop_worker.jobs.translate import Timings, completed, ended, to_event, to_request

DEFAULTS = engine.Sampling(temperature=0.5, top_p=0.3, max_tokens=100, max_objects=7)
USAGE = engine.Usage(735, 12, 730, prefill_time_ms=1.0, decode_time_ms=2.0, ttft_ms=3.0)
STOP = engine.FinishReason.STOP


def test_settings_of_the_job_win_over_the_workers() -> None:
    job = Job(id="a", skill=Skill.CAPTION, image="s3://b/k", settings=Settings(temperature=0.0, seed=3))
    sampling = to_request(job, (), DEFAULTS).sampling
    assert sampling == engine.Sampling(temperature=0.0, top_p=0.3, max_tokens=100, max_objects=7, seed=3)


@pytest.mark.parametrize(
    ("job", "task"),
    [
        (
            Job(
                id="a", skill=Skill.QUERY, question="why?", reasoning=True, spatial_refs=[(0.5, 0.5)], image="s3://b/k"
            ),
            engine.Query("why?", reasoning=True, spatial_refs=((0.5, 0.5),)),
        ),
        (Job(id="a", skill=Skill.CAPTION, length=CaptionLength.LONG, image="s3://b/k"), engine.Caption("long")),
        (Job(id="a", skill=Skill.DETECT, object="cat", image="s3://b/k"), engine.Detect("cat")),
        (Job(id="a", skill=Skill.POINT, object="cat", image="s3://b/k"), engine.Point("cat")),
        (
            Job(id="a", skill=Skill.POINT, object="cat", image="s3://b/k", spatial_refs=[(0.5, 0.5)]),
            engine.Point("cat", ((0.5, 0.5),)),
        ),
    ],
)
def test_each_skill_becomes_its_task(job: Job, task: engine.Task) -> None:
    request = to_request(job, (), DEFAULTS)
    assert (request.id, request.task) == ("a", task)


def test_outputs_become_numbered_events() -> None:
    assert to_event(engine.TextDelta("a", "x"), seq=4, attempt=2) == DeltaEvent(id="a", seq=4, attempt=2, text="x")
    assert to_event(engine.ReasoningDelta("a", "x"), seq=4, attempt=2) == ReasoningEvent(
        id="a", seq=4, attempt=2, text="x"
    )
    assert to_event(engine.PointFound("a", 0.1, 0.2), seq=4, attempt=2) == ObjectEvent(
        id="a", seq=4, attempt=2, object={"x": 0.1, "y": 0.2}
    )
    assert to_event(engine.BoxFound("a", 0.1, 0.2, 0.3, 0.4), seq=0, attempt=1) == ObjectEvent(
        id="a", seq=0, attempt=1, object={"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4}
    )


def test_a_query_keeps_its_reasoning_and_where_it_looked() -> None:
    finished = engine.Finished(
        "a", STOP, USAGE, text="2", reasoning="I see two.", grounding=(engine.GroundedSpan(2, 5, ((0.1, 0.2),)),)
    )
    job = Job(id="a", skill=Skill.QUERY, question="?", custom_id="row 1", metadata={"k": [1]})
    result = completed(job, finished, Timings(1.0, 2.0, 2.9999999))
    assert result.output is not None
    assert result.output.answer == "2"
    assert result.output.reasoning is not None
    assert result.output.reasoning.grounding[0].points == [(0.1, 0.2)]
    assert (result.status, result.finish_reason) == (State.COMPLETED, "stop")
    assert (result.custom_id, result.metadata) == ("row 1", {"k": [1]})
    assert (result.metrics.queue_time_ms, result.metrics.fetch_time_ms, result.metrics.image_time_ms) == (1, 2, 3)
    assert (result.metrics.input_tokens, result.metrics.cached_tokens) == (735, 730)


def test_each_skill_answers_in_its_own_field() -> None:
    def output(skill: Skill, **answer):
        job = Job(id="a", skill=skill, image="s3://b/k", object="o")
        return completed(job, engine.Finished("a", STOP, USAGE, **answer), Timings()).output

    assert output(Skill.CAPTION, text="A cat.").caption == "A cat."
    assert output(Skill.DETECT, boxes=(engine.BoxFound("a", 0, 0.1, 1, 0.9),)).objects == [Box(0, 0.1, 1, 0.9)]
    assert output(Skill.POINT, points=(engine.PointFound("a", 0.5, 0.25),)).points == [Point(0.5, 0.25)]
    assert output(Skill.DETECT).objects == []


def test_a_job_that_could_not_be_read_still_has_a_result() -> None:
    failure = Failure.of(FailureCode.MALFORMED, "not JSON")
    result = ended("17-0", None, State.FAILED, failure)
    assert (result.id, result.skill, result.failure) == ("17-0", None, failure)


@pytest.mark.parametrize(
    ("settings", "grammar"),
    [
        (Settings(), None),
        (Settings(response_format=TextFormat()), None),
        (Settings(regex="a|b"), engine.Grammar(regex="a|b")),
        (Settings(response_format=JsonObjectFormat()), engine.Grammar(schema='{"type": "object"}')),
        (
            Settings(response_format=JsonSchemaFormat(JsonSchema({"b": 1, "a": 2}))),
            engine.Grammar(schema='{"b":1,"a":2}'),  # in the caller's order, in which the answer has its fields
        ),
    ],
)
def test_the_form_of_an_answer_becomes_a_grammar(settings: Settings, grammar: engine.Grammar | None) -> None:
    request = to_request(Job(id="a", skill=Skill.QUERY, question="?", settings=settings), (), DEFAULTS)
    assert request.sampling == dataclasses.replace(DEFAULTS, grammar=grammar)
