import base64
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoop.client.build_job import build_job
from stoop.gateway.ask import Ask
from stoop.gateway.errors import ApiError
from stoop.gateway.kserve.ask import ask_of
from stoop.gateway.kserve.inputs import INPUTS
from stoop_schemas.job import Job
from stoop_schemas.skill import Settings

IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(64)
ADDRESS = "data:image/jpeg;base64," + base64.b64encode(IMAGE).decode()

MESSAGES = [{"role": "user", "content": "hello"}]

OF_THE_SERVICE = {"id", "v", "custom_id", "tenant", "metadata", "traceparent", "signature"}
"""Fields of a job that no caller of a model sets: the service's own, and those of a queue."""

OF_THE_QUEUE = {"max_attempts", "idempotency_key", "settings", "store_output"}


async def ask(**inputs: Any) -> Ask:
    return await ask_of({name: value if isinstance(value, list) else [value] for name, value in inputs.items()})


async def refused(**inputs: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await ask(**inputs)
    return caught.value


def test_every_field_and_setting_that_a_caller_sets_has_its_input() -> None:
    fields = set(Job.__struct_fields__) - OF_THE_SERVICE - OF_THE_QUEUE
    assert {name.lower() for name in INPUTS} == fields | set(Settings.__struct_fields__)


def test_only_the_skill_is_required() -> None:
    assert [name for name, each in INPUTS.items() if not each.optional] == ["SKILL"]


@pytest.mark.parametrize("skill", [b"query", "query"], ids=["bytes", "text"])
async def test_a_query_with_all_that_moondream_documents(skill: bytes | str) -> None:
    asked = await ask(
        SKILL=skill,
        QUESTION="Où ?".encode(),
        IMAGE=IMAGE,
        STREAM=True,
        REASONING=False,
        SPATIAL_REFS=b"[[0.5, 0.25]]",
        TEMPERATURE=0.5,
        TOP_P=1,
        MAX_TOKENS=64,
        MAX_OBJECTS=3,
    )
    assert asked.skill == "query"
    assert asked.image == IMAGE
    assert asked.fields == {"question": "Où ?", "stream": True, "reasoning": False, "spatial_refs": [[0.5, 0.25]]}
    assert asked.settings == {"temperature": 0.5, "top_p": 1.0, "max_tokens": 64, "max_objects": 3}


@pytest.mark.parametrize(
    ("inputs", "job"),
    [
        ({"SKILL": "caption", "LENGTH": b"short"}, {"length": "short"}),
        ({"SKILL": "detect", "OBJECT": b"a cat"}, {"object": "a cat"}),
        ({"SKILL": "point", "OBJECT": b"a cat"}, {"object": "a cat"}),
        ({"SKILL": "gaze", "SPATIAL_REFS": b"[[0.5, 0.5]]"}, {"spatial_refs": [(0.5, 0.5)]}),
    ],
    ids=["caption", "detect", "point", "gaze"],
)
async def test_the_request_makes_a_valid_job(inputs: dict[str, Any], job: dict[str, Any]) -> None:
    asked = await ask(IMAGE=ADDRESS.encode(), **inputs)
    built = build_job(asked.skill, settings=asked.settings, image=asked.image, **asked.fields)
    assert built.image == ADDRESS
    assert {name: getattr(built, name) for name in job} == job


@pytest.mark.parametrize(
    "inputs",
    [
        {"SKILL": "chat", "MESSAGES": msgspec.json.encode(MESSAGES), "DATE": b"2026-01-31"},
        {"SKILL": "embed", "INPUT": [b"one", b"two"], "KINDS": [b"dense", b"sparse"], "DIMENSIONS": 64},
        {"SKILL": "rerank", "QUERY": b"which", "DOCUMENTS": [b"this", b"that"], "TRUNCATE": True},
        {"SKILL": "transcribe", "AUDIO": b"s3://bucket/talk.wav", "TIMESTAMPS": b"word", "VAD": True},
    ],
    ids=lambda inputs: str(inputs["SKILL"]),
)
async def test_the_skills_of_other_models_make_valid_jobs_too(inputs: dict[str, Any]) -> None:
    asked = await ask(**inputs)
    assert build_job(asked.skill, settings=asked.settings, **asked.fields).skill == inputs["SKILL"]


async def test_pointing_at_gaze_from_a_place_is_a_gaze_as_for_moondream() -> None:
    asked = await ask(SKILL="point", OBJECT="gaze", SPATIAL_REFS="[[0.1, 0.2]]", IMAGE=IMAGE)
    assert (asked.skill, asked.fields) == ("gaze", {"spatial_refs": [[0.1, 0.2]]})


async def test_model_and_lane_stay_apart_from_the_job_s_fields() -> None:
    asked = await ask(SKILL="query", QUESTION="?", MODEL=b"moondream3-preview/ft@7", LANE=b"bulk")
    assert (asked.model, asked.lane, asked.fields) == ("moondream3-preview/ft@7", "bulk", {"question": "?"})


async def test_empty_texts_count_as_absent() -> None:
    asked = await ask(SKILL="query", QUESTION=b"?", IMAGE=b"", OBJECT=b"", SPATIAL_REFS=b"", ADAPTER=b"", INPUT=[])
    assert (asked.image, asked.settings, asked.fields) == (None, {}, {"question": "?"})


async def test_a_decimal_fraction_survives_its_32_bits() -> None:
    (narrow,) = struct.unpack("f", struct.pack("f", 0.1))
    assert narrow != 0.1
    assert (await ask(SKILL="query", QUESTION="?", TEMPERATURE=narrow)).settings == {"temperature": 0.1}


async def test_an_image_without_bytes_is_base64_or_an_address() -> None:
    encoded = base64.b64encode(IMAGE)
    assert (await ask(SKILL="caption", IMAGE=encoded)).image == ADDRESS
    assert (await ask(SKILL="caption", IMAGE=b"s3://bucket/cat.jpg")).image == "s3://bucket/cat.jpg"
    assert (await refused(SKILL="caption", IMAGE=b"a cat?")).code == "image_undecodable"


async def test_a_recording_is_bytes_base64_or_an_address() -> None:
    wav = b"RIFF\x24\0\0\0WAVE"
    assert (await ask(SKILL="transcribe", AUDIO=wav)).fields == {"audio": wav}
    assert (await ask(SKILL="transcribe", AUDIO=base64.b64encode(wav))).fields == {"audio": wav}
    assert (await refused(SKILL="transcribe", AUDIO=b"a talk?")).code == "audio_undecodable"


async def test_no_input_is_read_as_a_file_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(IMAGE)
    parts = [{"type": "image_url", "image_url": {"url": str(path)}}]
    messages = msgspec.json.encode([{"role": "user", "content": parts}])
    for inputs in ({"IMAGE": str(path)}, {"AUDIO": str(path)}, {"MESSAGES": messages}):
        assert (await refused(SKILL="query", **inputs)).status == 400


@pytest.mark.parametrize(
    ("inputs", "named", "advice"),
    [
        ({"QUESTION": "?"}, "SKILL", "give the input SKILL"),
        ({"SKILL": "query", "COLOUR": b"red"}, "COLOUR", "no input 'COLOUR'; known are SKILL, QUESTION"),
        ({"SKILL": [b"query", b"caption"]}, "SKILL", "2 elements"),
        ({"SKILL": b"\xff"}, "SKILL", "UTF-8"),
        ({"SKILL": "query", "STREAM": 1}, "STREAM", "must be BOOL"),
        ({"SKILL": "query", "MAX_TOKENS": True}, "MAX_TOKENS", "must be INT32"),
        ({"SKILL": "query", "QUESTION": 7}, "QUESTION", "must be BYTES"),
        ({"SKILL": "query", "SPATIAL_REFS": b"0.5, 0.5"}, "SPATIAL_REFS", "not JSON"),
        ({"SKILL": "chat", "MESSAGES": b'[{"role": "cat"}]'}, "MESSAGES", "role"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
async def test_a_wrong_input_is_named(inputs: dict[str, Any], named: str, advice: str) -> None:
    error = await refused(**inputs)
    assert (error.status, error.code, error.param) == (400, "invalid_argument", named)
    assert advice in error.message
