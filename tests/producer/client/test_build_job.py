from typing import Any

import pytest

from stoop.client.build_job import answer, build_job, within
from stoop.errors import InvalidJob
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.failure import FailureCode
from stoop_schemas.skill import CaptionLength, Grounding, Output, Reasoning, Settings, Skill
from tests.producer.scripted import CANNED, completed


def test_a_job_has_the_given_fields_and_a_fresh_id() -> None:
    made = [build_job("caption", image="s3://b/k", length="long", settings={"seed": 3}) for _ in range(2)]
    assert made[0].skill == Skill.CAPTION
    assert made[0].length is CaptionLength.LONG
    assert made[0].settings == Settings(seed=3)
    assert made[0].id != made[1].id


def test_none_means_not_given() -> None:
    job = build_job("query", question="why?", object=None, settings={"top_p": None})
    assert job.settings == Settings()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"skill": "describe", "image": "s3://b/k"},
            "unknown skill 'describe' .*; known are query, caption, detect, point",
        ),
        ({"skill": "captoin", "image": "s3://b/k"}, "did you mean 'caption'"),
        ({"skill": 7, "image": "s3://b/k"}, "unknown skill 7; known are query"),
        ({"skill": "query", "question": "?", "max_tokens": 9}, r"'max_tokens'; it goes into the settings: settings=\{"),
        ({"skill": "query", "settings": {"question": "?"}}, "a field of the job"),
        ({"skill": "caption"}, "needs an image"),
        ({"skill": "caption", "image": "s3://b/k", "length": "epic"}, "epic"),
        ({"skill": "detect", "image": "s3://b/k"}, "object"),
        ({"skill": "query", "question": 7}, "question"),
        ({"skill": "query", "question": "?", "settings": {"temprature": 0}}, "did you mean 'temperature'"),
        ({"skill": "query", "question": "?", "settings": {"temperature": -1}}, "temperature is -1"),
        ({"skill": "query", "question": "?", "settings": {"max_tokens": "many"}}, "max_tokens"),
        (
            {"skill": "query", "question": "?", "qestion": "?"},
            "unknown field of the job: 'qestion' .did you mean 'question'",
        ),
        ({"skill": "query", "question": "?", "spatial_refs": [[0.5, 0.5]]}, "need an image"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as raised:
        build_job(**fields)
    codes = (FailureCode.INVALID_ARGUMENT, FailureCode.MALFORMED, FailureCode.UNSUPPORTED_SKILL)
    assert raised.value.failure.code in codes


@pytest.mark.parametrize(
    ("skill", "shape"),
    [
        (Skill.QUERY, {"answer": "two red circles"}),
        (Skill.CAPTION, {"caption": "shapes on paper"}),
        (Skill.POINT, {"points": [{"x": 0.25, "y": 0.75}]}),
        (
            Skill.DETECT,
            {
                "objects": [
                    {"x_min": 0.1, "y_min": 0.2, "x_max": 0.5, "y_max": 0.6},
                    {"x_min": 0.6, "y_min": 0.1, "x_max": 0.9, "y_max": 0.4},
                ]
            },
        ),
    ],
)
def test_answers_have_moondreams_shapes(skill: Skill, shape: dict[str, Any]) -> None:
    assert answer(completed("a", skill, CANNED[skill])) == shape


def test_reasoning_comes_with_its_grounding() -> None:
    output = Output(answer="one", reasoning=Reasoning("a dog", [Grounding(2, 5, [(0.1, 0.2)])]))
    assert answer(completed("a", Skill.QUERY, output)) == {
        "answer": "one",
        "reasoning": {"text": "a dog", "grounding": [{"start_idx": 2, "end_idx": 5, "points": [(0.1, 0.2)]}]},
    }


def test_no_objects_is_an_empty_list() -> None:
    assert answer(completed("a", Skill.DETECT, Output(objects=[]))) == {"objects": []}


@pytest.mark.parametrize(
    ("image", "tenant", "allowed"),
    [
        (None, None, True),
        ("s3://open/a.png", None, True),
        ("s3://open/a.png", "acme", False),
        ("s3://scans/acme/a.png?versionId=3", "acme", True),
        ("s3://scans/one.png?versionId=3", "acme", True),
        ("s3://scans/acme/../rival/a.png", "acme", False),
        ("s3://scans/rival/a.png", "acme", False),
        ("data:image/png;base64,AA==", "acme", True),
        ("https://example.org/a.png", "acme", True),
    ],
)
def test_an_image_must_be_where_the_tenant_may_read(image: str | None, tenant: str | None, allowed: bool) -> None:
    rules = AllowedBuckets.read(["open", "acme=scans/acme", "acme=scans/one.png"])
    job = build_job("query", question="why?", image=image, tenant=tenant)
    if allowed:
        assert within(rules, job) is job
        return
    with pytest.raises(InvalidJob) as raised:
        within(rules, job)
    assert raised.value.failure.code is FailureCode.IMAGE_FORBIDDEN


def test_a_version_is_not_part_of_the_allowed_path() -> None:
    allowed = AllowedBuckets.read(("bucket/a?versionId=b/",))
    inside = build_job("caption", image="s3://bucket/a?versionId=b/c.png?versionId=1")
    assert within(allowed, inside) is inside
    with pytest.raises(InvalidJob, match="not allowed"):
        within(allowed, build_job("caption", image="s3://bucket/a?versionId=b"))
