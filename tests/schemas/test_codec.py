import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_schemas.codec import PACKED_LIMIT, pack, unpack_event, unpack_job, unpack_result
from stoop_schemas.event import Event
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import METADATA_LIMIT, Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from tests.schemas.strategies import any_events, any_jobs, any_json, any_results

UNPACK = [unpack_job, unpack_event, unpack_result]
JOB = {"id": "a", "skill": "query", "question": "q"}


def fits(job: Job) -> bool:
    return len(msgspec.json.encode(job.metadata)) <= METADATA_LIMIT


@given(any_jobs().filter(fits))
def test_a_job_comes_back_as_it_went(job: Job) -> None:
    assert unpack_job(pack(job)) == job


@given(any_events)
def test_an_event_comes_back_as_it_went(event: Event) -> None:
    unpacked = unpack_event(pack(event))
    assert unpacked == event and type(unpacked) is type(event)


@given(any_results)
def test_a_result_comes_back_as_it_went(result: Result) -> None:
    assert unpack_result(pack(result)) == result


def beside(packed: bytes, extra: dict[str, object]) -> bytes:
    """Add fields that the message does not have yet."""
    message = json.loads(packed)
    return msgspec.json.encode({f"x_{name}": value for name, value in extra.items()} | message)


@given(any_events, st.dictionaries(st.text("abc", min_size=1), any_json, max_size=3))
def test_unknown_fields_of_an_event_are_ignored(event: Event, extra: dict[str, object]) -> None:
    assert unpack_event(beside(pack(event), extra)) == event


@given(any_jobs().filter(fits), st.dictionaries(st.text("abc", min_size=1), any_json, max_size=3))
def test_unknown_fields_of_a_job_are_ignored(job: Job, extra: dict[str, object]) -> None:
    assert unpack_job(beside(pack(job), extra)) == job


@given(any_results, st.dictionaries(st.text("abc", min_size=1), any_json, max_size=3))
def test_unknown_fields_of_a_result_are_ignored(result: Result, extra: dict[str, object]) -> None:
    assert unpack_result(beside(pack(result), extra)) == result


@pytest.mark.parametrize("unpack", UNPACK)
@given(packed=st.binary() | any_json.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_raise_only_rejected(unpack: Callable[[bytes], object], packed: bytes) -> None:
    with pytest.raises(Rejected) as rejected:
        unpack(packed)
    assert rejected.value.failure.code is FailureCode.MALFORMED


@pytest.mark.parametrize("unpack", UNPACK)
@given(event=any_events, cut=st.integers(0, 200), junk=st.binary(max_size=4))
def test_damaged_messages_raise_only_rejected(
    unpack: Callable[[bytes], object], event: Event, cut: int, junk: bytes
) -> None:
    packed = pack(event)
    try:
        unpack(packed[:cut] + junk + packed[cut + len(junk) :])
    except Rejected as rejected:
        assert rejected.failure.message


@pytest.mark.parametrize("unpack", UNPACK)
@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"id":"a","skill":"query","question":"\xff"}',
        b'{"id":"a","skill":"query","question":"\\ud800"}',
        b'{"id":"a","skill":"query","question":"q","metadata":{"a":1e999}}',
        b'{"id":"a","skill":"query","question":"q","deep":' + b"[" * 100_000,
        b'{"id":"a","skill":"query","question":"q","deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"id":"a","skill":"query","question":"q","metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
    ],
    ids=lambda packed: repr(packed[:60]),
)
def test_known_poison_is_malformed(unpack: Callable[[bytes], object], packed: bytes) -> None:
    with pytest.raises(Rejected) as rejected:
        unpack(packed)
    assert rejected.value.failure.code is FailureCode.MALFORMED
    assert not rejected.value.failure.retryable


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"v": 2}, FailureCode.MALFORMED),
        ({"id": None}, FailureCode.MALFORMED),
        ({"id": 7}, FailureCode.MALFORMED),
        ({"skill": None}, FailureCode.MALFORMED),
        ({"skill": 7}, FailureCode.MALFORMED),
        ({"skill": "dance"}, FailureCode.UNSUPPORTED_SKILL),
        ({"length": "epic"}, FailureCode.MALFORMED),
        ({"settings": {"temperature": "hot"}}, FailureCode.MALFORMED),
        ({"stream": "yes"}, FailureCode.MALFORMED),
        ({"metadata": []}, FailureCode.MALFORMED),
        ({"lane": "a b"}, FailureCode.INVALID_ARGUMENT),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], code: FailureCode) -> None:
    with pytest.raises(Rejected) as rejected:
        unpack_job(msgspec.json.encode(JOB | change))
    assert rejected.value.failure.code is code
    assert next(iter(change)) in rejected.value.failure.message


@pytest.mark.parametrize("missing", ["id", "skill", "question"])
def test_a_missing_required_field_is_malformed(missing: str) -> None:
    with pytest.raises(Rejected) as rejected:
        unpack_job(msgspec.json.encode({name: value for name, value in JOB.items() if name != missing}))
    assert rejected.value.failure.code is FailureCode.MALFORMED
    assert missing in rejected.value.failure.message


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"a": object()}, {1.5j: 1}])
def test_a_value_without_json_is_rejected_when_packed(value: dict[str, object]) -> None:
    with pytest.raises(Rejected) as rejected:
        pack(Job(id="a", skill=Skill.QUERY, question="q", metadata=value))
    assert rejected.value.failure.code is FailureCode.INVALID_ARGUMENT


def test_an_oversized_job_is_rejected_before_parsing() -> None:
    packed = b'{"id":"a","skill":"query","question":"q"' + b" " * PACKED_LIMIT + b"}"
    with pytest.raises(Rejected, match=f"at most {PACKED_LIMIT}") as raised:
        unpack_job(packed)
    assert raised.value.failure.code is FailureCode.MALFORMED
