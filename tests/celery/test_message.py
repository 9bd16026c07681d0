"""Celery messages are read as jobs, or refused with a reason."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.signature import SigningKeys
from stoop_schemas.skill import Settings, Skill
from stoop_worker.celery.message import read_job, read_message

KEYS = SigningKeys.read(["k1:0123456789abcdef"])


def message(
    task: str = "stoop.query",
    args: object = (None, "what?"),
    kwargs: object = None,
    *,
    headers: dict[str, Any] | None = None,
    **changes: Any,
) -> bytes:
    """Return a message as kombu writes it to Redis."""
    body = json.dumps([args, kwargs or {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    fields = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": task, "id": "task-1", "retries": 0, "argsrepr": "(...)", **(headers or {})},
        "properties": {"body_encoding": "base64", "priority": 0, "delivery_info": {"routing_key": "stoop.bulk"}},
    }
    return json.dumps(fields | {name.replace("_", "-"): value for name, value in changes.items()}).encode()


def read(packed: bytes, keys: SigningKeys | None = None) -> Job:
    return read_job(read_message(packed, keys))


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "expected"),
    [
        ("stoop.query", (None, "what?"), {}, {"question": "what?"}),
        ("stoop.query", ("s3://b/k",), {"question": "q", "reasoning": True}, {"question": "q", "reasoning": True}),
        ("stoop.caption", ("s3://b/k",), {}, {"image": "s3://b/k"}),
        ("stoop.caption", ("s3://b/k", "short"), {}, {"length": "short"}),
        (
            "stoop.detect",
            ("s3://b/k", "car"),
            {"settings": {"seed": 7}},
            {"object": "car", "settings": Settings(seed=7)},
        ),
        ("stoop.point", (), {"image": "s3://b/k", "object": "car", "tenant": "acme"}, {"tenant": "acme"}),
        ("stoop.query", (None, "q"), {"metadata": {"row": 1}, "custom_id": "7"}, {"metadata": {"row": 1}}),
        ("stoop.query", (None, "q"), {"model": "moondream3"}, {"model": "moondream3"}),
    ],
)
def test_arguments_are_the_jobs_fields(task: str, args: object, kwargs: object, expected: dict[str, object]) -> None:
    job = read(message(task, args, kwargs))
    assert (job.id, job.skill) == ("task-1", Skill(task.removeprefix("stoop.")))
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("expires", "deadline"),
    [("2026-11-20T22:00:00+00:00", 1795212000000), ("2026-11-20T22:00:00", 1795212000000)],
)
def test_the_time_of_expiry_is_the_deadline(expires: str, deadline: int) -> None:
    assert read(message(headers={"expires": expires})).deadline == deadline


def test_headers_that_a_sender_by_name_leaves_null_are_read() -> None:
    nulls = dict.fromkeys(
        ["ignore_result", "retries", "replaced_task_nesting", "group", "parent_id", "stamped_headers"]
    )
    assert read(message(headers=nulls)).id == "task-1"


def test_an_explicit_deadline_wins_over_expires() -> None:
    assert read(message(kwargs={"deadline": 5}, headers={"expires": "2026-11-20T22:00:00"})).deadline == 5


@pytest.mark.parametrize(
    ("packed", "code", "reason"),
    [
        (b"", FailureCode.MALFORMED, "not a Celery message"),
        (b"not JSON", FailureCode.MALFORMED, "not a Celery message"),
        (b"[" * 100_000, FailureCode.MALFORMED, "not a Celery message"),
        (b"x" * (8 << 20) + b"x", FailureCode.MALFORMED, "at most"),
        (message(content_type="application/x-python-serialize"), FailureCode.MALFORMED, "task_serializer to json"),
        (message(content_type="application/x-yaml"), FailureCode.MALFORMED, "only uncompressed JSON"),
        (message(headers={"compression": "application/x-gzip"}), FailureCode.MALFORMED, "only uncompressed JSON"),
        (message(body="%%%"), FailureCode.MALFORMED, "its body"),
        (message(body=base64.b64encode(b"{}").decode()), FailureCode.MALFORMED, "its body"),
        (message(headers={"expires": "tomorrow"}), FailureCode.MALFORMED, "ISO 8601"),
        (message(task="os.system", args=("true",)), FailureCode.UNSUPPORTED_SKILL, "no other task"),
        (message(task="stoop.paint"), FailureCode.UNSUPPORTED_SKILL, "stoop.query, stoop.caption"),
        (message(args=(1, 2, 3)), FailureCode.INVALID_ARGUMENT, "image and question by position"),
        (message(args=(["a"], "q")), FailureCode.INVALID_ARGUMENT, "arguments"),
        (message(kwargs={"question": "again"}), FailureCode.INVALID_ARGUMENT, "question was given twice"),
        (message(kwargs={"max_tokens": 9}), FailureCode.INVALID_ARGUMENT, "'max_tokens': it goes into `settings`"),
        (message(kwargs={"id": "another"}), FailureCode.INVALID_ARGUMENT, "no field 'id'"),
        (message(kwargs={"signature": "k:1"}), FailureCode.INVALID_ARGUMENT, "no field 'signature'"),
        (message(kwargs={"settings": {"temperature": 99}}), FailureCode.INVALID_ARGUMENT, "temperature"),
        (message(args=()), FailureCode.MALFORMED, "needs a question"),
        (message(headers={"id": "../x"}), FailureCode.INVALID_ARGUMENT, "id must be"),
    ],
)
def test_anything_else_is_refused_with_the_reason(packed: bytes, code: FailureCode, reason: str) -> None:
    with pytest.raises(Rejected, match=reason) as rejected:
        read(packed)
    assert rejected.value.failure.code is code


def test_with_keys_only_a_signed_message_is_read() -> None:
    assert KEYS is not None
    signed = KEYS.sign(message())
    assert read(signed, KEYS).question == "what?"
    for packed in (message(), signed.replace(b'"retries"', b'"retried"'), b""):
        with pytest.raises(Rejected, match="sign"):
            read_message(packed, KEYS)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_refused_without_a_crash(packed: bytes) -> None:
    with pytest.raises(Rejected):
        read(packed)


@given(
    st.dictionaries(
        st.sampled_from(["task", "id", "expires", "group", "group_index", "retries", "stamps"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2),
    ),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=6
    ),
)
def test_headers_and_arguments_of_any_kind_make_a_job_or_are_refused(headers: dict[str, Any], args: object) -> None:
    try:
        assert isinstance(read(message(args=args, headers=headers)), Job)
    except Rejected as rejected:
        assert rejected.failure.message
