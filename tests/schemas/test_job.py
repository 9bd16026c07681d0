from typing import Any

import msgspec
import pytest

from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import ID_LIMIT, IMAGE_LIMIT, METADATA_LIMIT, TEXT_LIMIT, Job, check
from stoop_schemas.skill import SETTING_RANGES, Settings, Skill
from tests.schemas.invalid import INVALID, VALID, VALID_CHANGES


def built(change: dict[str, Any]) -> Job:
    return msgspec.convert(VALID | change, Job)


@pytest.mark.parametrize("change", VALID_CHANGES, ids=str)
def test_a_job_in_its_ranges_passes(change: dict[str, Any]) -> None:
    job = built(change)
    assert check(job) is job


@pytest.mark.parametrize(("change", "code"), INVALID, ids=lambda value: str(value)[:60])
def test_a_job_out_of_its_ranges_is_rejected(change: dict[str, Any], code: FailureCode) -> None:
    with pytest.raises(Rejected) as rejected:
        check(built(change))
    assert rejected.value.failure.code is code
    assert not rejected.value.failure.retryable


@pytest.mark.parametrize("field", SETTING_RANGES)
def test_the_ends_of_each_range_are_in_it(field: str) -> None:
    low, high = SETTING_RANGES[field]
    for value in (low, high):
        check(Job(id="a", skill=Skill.QUERY, question="q", settings=Settings(**{field: value})))
    for value in (low - 1, high + 1):
        with pytest.raises(Rejected, match=field):
            check(Job(id="a", skill=Skill.QUERY, question="q", settings=Settings(**{field: value})))


@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_nan_is_out_of_every_range(field: str) -> None:
    with pytest.raises(Rejected, match=field):
        check(Job(id="a", skill=Skill.QUERY, question="q", settings=Settings(**{field: float("nan")})))


def test_the_limits_are_reached_and_not_passed() -> None:
    for field, limit in {"id": ID_LIMIT, "question": TEXT_LIMIT}.items():
        check(built({field: "a" * limit}))
        with pytest.raises(Rejected, match=field):
            check(built({field: "a" * (limit + 1)}))


def test_metadata_is_measured_as_json() -> None:
    check(built({"metadata": {"a": "x" * (METADATA_LIMIT - len('{"a":""}'))}}))
    with pytest.raises(Rejected, match="metadata"):
        check(built({"metadata": {"a": "x" * (METADATA_LIMIT - len('{"a":""}') + 1)}}))


def test_metadata_that_has_no_json_is_rejected() -> None:
    loop: dict[str, Any] = {}
    loop["itself"] = loop
    with pytest.raises(Rejected, match="metadata"):
        check(Job(id="a", skill=Skill.QUERY, question="q", metadata=loop))


def test_an_image_too_large_for_the_queue_belongs_in_the_store() -> None:
    with pytest.raises(Rejected, match="object store") as rejected:
        check(built({"image": "data:image/png;base64," + "A" * IMAGE_LIMIT}))
    assert rejected.value.failure.code is FailureCode.IMAGE_TOO_LARGE


def test_the_message_does_not_repeat_the_users_value() -> None:
    with pytest.raises(Rejected) as rejected:
        check(built({"image": "ftp://user:secret@host/x"}))
    assert "secret" not in rejected.value.failure.message
