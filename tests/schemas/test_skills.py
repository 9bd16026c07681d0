"""Every skill of the table is whole: the names of failing tests list the missing parts of a new one."""

from typing import Any

import msgspec
import pytest

from stoop import AsyncClient, Client
from stoop.bulk.options import BulkOptions
from stoop.celery import task
from stoop.cli.app import COMMANDS
from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.skill import Output, Skill
from stoop_schemas.skills import BUILT_IN, TEXT_OUTPUTS, SkillSpec, spec_of
from stoop_worker.engine import request as engine
from stoop_worker.jobs.pipelines import Transcription
from stoop_worker.jobs.translate import Timings, completed, to_request, transcribed

EXAMPLES: dict[str, Any] = {
    "image": "s3://bucket/key",
    "question": "what?",
    "object": "car",
    "length": "short",
    "spatial_refs": [(0.4, 0.3)],
    "messages": [{"role": "user", "content": "hello"}],
    "input": ["hello", "world"],
    "query": "hello?",
    "documents": ["hello", "world"],
    "audio": "s3://bucket/talk.mp3",
}
SPECS = pytest.mark.parametrize("spec", BUILT_IN.values(), ids=lambda spec: spec.name)


def given(spec: SkillSpec) -> dict[str, object]:
    return {name: EXAMPLES[name] for name in dict.fromkeys((*spec.fields, *spec.required))}


def job_of(spec: SkillSpec) -> Job:
    return msgspec.convert({"id": "a", "skill": spec.name, **given(spec)}, Job)


def test_the_table_and_the_names_agree() -> None:
    assert {skill.value for skill in Skill} == set(BUILT_IN)


@SPECS
def test_its_fields_are_a_jobs_and_its_output_is_an_outputs(spec: SkillSpec) -> None:
    assert {*spec.fields, *spec.options, *spec.required} <= set(Job.__struct_fields__)
    assert spec.output in Output.__struct_fields__


@SPECS
def test_both_clients_have_a_method_of_its_name(spec: SkillSpec) -> None:
    assert callable(getattr(AsyncClient, spec.name)) and callable(getattr(Client, spec.name))


@SPECS
def test_the_command_line_has_a_command_with_its_words(spec: SkillSpec) -> None:
    [command] = [each for each in COMMANDS if each.name == spec.name]
    assert command.help == spec.summary


@SPECS
def test_celery_has_its_task(spec: SkillSpec) -> None:
    import stoop.celery

    assert task(spec.name) is getattr(stoop.celery, spec.name), "`task` does not name it"
    assert task(spec.name).name == f"stoop.{spec.name}"


@SPECS
def test_a_bulk_run_can_give_its_fields(spec: SkillSpec) -> None:
    by_rows = {"image", "messages", "input", "query", "documents", "audio"}
    assert set(spec.fields) - by_rows <= set(BulkOptions.__dataclass_fields__)


@SPECS
def test_a_field_it_needs_is_asked_for(spec: SkillSpec) -> None:
    for missing in spec.required:
        rest = {name: value for name, value in given(spec).items() if name != missing}
        with pytest.raises(Rejected, match=f"{spec.name} needs"):
            unpack_job(msgspec.json.encode({"v": 1, "id": "a", "skill": spec.name, **rest}))


@SPECS
def test_the_engine_runs_each_skill_and_its_answer_has_the_declared_field(spec: SkillSpec) -> None:
    job = job_of(spec)
    request = to_request(job, (), engine.Sampling())
    assert type(request.task).__name__.lower() == (spec.runs or spec.name)
    usage = engine.Usage(1, 1, 0, 1.0, 1.0, 1.0)
    if spec.output == "transcript":
        spoken = Transcription("en", 1.0, (), usage, engine.FinishReason.STOP)
        assert "transcript" in msgspec.to_builtins(transcribed(job, spoken, Timings()).output)
        return
    finished = engine.Finished(id="a", reason=engine.FinishReason.STOP, usage=usage, text="words")
    output = completed(job, finished, Timings()).output
    assert output is not None and spec.output in msgspec.to_builtins(output)
    assert output.text == ("words" if spec.output in TEXT_OUTPUTS else None)


def test_an_unknown_skill_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(Rejected, match="'dance'; known are query, caption, detect, point, gaze") as raised:
        spec_of("dance")
    assert raised.value.failure.code is FailureCode.UNSUPPORTED_SKILL


def test_a_prompt_names_fields_of_its_skill() -> None:
    with pytest.raises(ValueError, match="the prompt of the skill count names 'thing', which is none of its fields"):
        SkillSpec(
            name="count", summary="Count.", fields=("image", "object"), required=(), output="answer", prompt="{thing}?"
        )


def test_segment_is_refused_with_the_reason() -> None:
    with pytest.raises(Rejected, match=r"no model here can segment: .* not public; detect gives boxes") as raised:
        spec_of("segment")
    assert raised.value.failure.code is FailureCode.UNSUPPORTED_SKILL


@pytest.mark.parametrize("refs", [[(0.1, 0.2), (0.3, 0.4)], [(0.1, 0.2, 0.3, 0.4)]])
def test_a_gaze_takes_one_point(refs: list[tuple[float, ...]]) -> None:
    job = Job(id="a", skill="gaze", image="s3://bucket/key", spatial_refs=refs)
    with pytest.raises(Rejected, match="gaze takes one point"):
        unpack_job(pack(job))


def test_a_gaze_at_nothing_is_an_answer() -> None:
    assert msgspec.json.encode(Output(gaze=None)) == b'{"gaze":null}'
    assert msgspec.json.decode(b'{"gaze":null}', type=Output).gaze is None
    assert "gaze" not in msgspec.to_builtins(Output(points=[]))
