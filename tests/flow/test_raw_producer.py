"""Producers without our client: plain commands of Redis, right and wrong, against a real worker."""

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
import redis

from stoop_schemas import names
from stoop_schemas.codec import unpack_event, unpack_result
from stoop_schemas.event import FailedEvent
from stoop_schemas.failure import FailureCode
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.flow.conftest import Service

CONTRACT = Path(__file__).resolve().parents[2] / "schemas" / "README.md"


def add(connection: "redis.Redis[bytes]", job: dict[str, object] | bytes, field: str = "j") -> str:
    packed = job if isinstance(job, bytes) else json.dumps(job).encode()
    return connection.xadd(names.lane("interactive"), {field: packed}).decode()


def wait(connection: "redis.Redis[bytes]", job_id: str) -> Result:
    """Block on the job's log until its last event, then read the result."""
    last = "0"
    while True:
        replies = connection.xread({names.log(job_id): last}, block=30_000)
        assert replies, f"{job_id} has not ended"
        for entry, fields in replies[0][1]:
            last = entry
            if unpack_event(fields[b"e"]).__struct_config__.tag in ("finished", "failed", "cancelled", "expired"):
                packed = connection.get(names.result(job_id))
                assert packed is not None
                return unpack_result(packed)


@pytest.fixture
def connection(service: Service):
    with redis.Redis.from_url(service.redis_url, protocol=2) as connection:
        yield connection


def test_the_session_in_the_contract_runs_as_it_is_written(service: Service) -> None:
    [session] = re.findall(r"```bash\n(.*?)```", CONTRACT.read_text(), re.DOTALL)
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "STOOP_REDIS_URL": service.redis_url, "PATH": path}
    done = subprocess.run(["bash", "-euc", session], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert '"type":"finished"' in done.stdout
    assert '"status":"completed"' in done.stdout
    assert done.stdout.count('"type":"started"') == 2, "once in the log and once on the channel"


def test_one_xadd_is_a_job(connection: "redis.Redis[bytes]", service: Service) -> None:
    add(connection, {"id": "raw-1", "skill": "caption", "image": service.image, "settings": {"max_tokens": 3}})
    result = wait(connection, "raw-1")
    assert result.status is State.COMPLETED
    assert result.output is not None
    assert result.output.caption is not None


def test_a_line_of_a_moondream_batch_file_is_a_job(connection: "redis.Redis[bytes]", service: Service) -> None:
    line = {"id": "img-007", "skill": "point", "image": service.image, "object": "circle"}
    add(connection, {**line, "settings": {"max_objects": 1}})
    assert wait(connection, "img-007").status is State.COMPLETED


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (b"{ not json", FailureCode.MALFORMED),
        (b'["a", "list"]', FailureCode.MALFORMED),
        (b"\xff\xfe\x00", FailureCode.MALFORMED),
        ({"skill": "caption", "image": "s3://b/k"}, FailureCode.MALFORMED),
    ],
)
def test_an_entry_without_an_id_is_answered_under_its_own(
    connection: "redis.Redis[bytes]", job: dict[str, object] | bytes, code: FailureCode
) -> None:
    entry = add(connection, job)
    result = wait(connection, entry)
    assert result.failure is not None
    assert (result.status, result.failure.code) == (State.FAILED, code)


def test_an_entry_without_the_jobs_field_is_answered(connection: "redis.Redis[bytes]") -> None:
    result = wait(connection, add(connection, b"{}", field="x"))
    assert result.failure is not None
    assert result.failure.code is FailureCode.MALFORMED
    assert "no field `j`" in result.failure.message


def test_wrong_jobs_fail_with_their_code_and_the_worker_goes_on(
    connection: "redis.Redis[bytes]", service: Service
) -> None:
    store, bucket = service.s3.client(), service.s3.bucket
    store.put_object(Bucket=bucket, Key="flow/text.png", Body=b"not an image")
    wrong = {
        "fly": ({"skill": "fly"}, FailureCode.UNSUPPORTED_SKILL),
        "imageless": ({"skill": "caption"}, FailureCode.MALFORMED),
        "questionless": ({"skill": "query"}, FailureCode.MALFORMED),
        "hot": ({"skill": "caption", "settings": {"temperature": -1}}, FailureCode.INVALID_ARGUMENT),
        "gone": ({"skill": "caption", "image": f"s3://{bucket}/flow/gone.png"}, FailureCode.IMAGE_NOT_FOUND),
        "text": ({"skill": "caption", "image": f"s3://{bucket}/flow/text.png"}, FailureCode.IMAGE_UNDECODABLE),
        "web": ({"skill": "caption", "image": "https://example.org/a.png"}, FailureCode.INVALID_ARGUMENT),
        "long": ({"skill": "query", "question": "why " * 1900, "image": service.image}, FailureCode.CONTEXT_OVERFLOW),
        "model": ({"skill": "query", "question": "why?", "model": "another"}, FailureCode.UNSUPPORTED_MODEL),
        "reserved": ({"skill": "query", "question": "why?", "lane": "quarantine:small"}, FailureCode.INVALID_ARGUMENT),
        "version": ({"skill": "caption", "v": 9, "image": service.image}, FailureCode.MALFORMED),
    }
    wrong["hot"][0]["image"] = service.image
    for name, (fields, _) in wrong.items():
        add(connection, {"id": name, **fields})
    for name, (_, code) in wrong.items():
        failure = wait(connection, name).failure
        assert failure is not None, name
        assert failure.code is code, name
        assert failure.message
    add(connection, {"id": "right", "skill": "caption", "image": service.image, "settings": {"max_tokens": 2}})
    assert wait(connection, "right").status is State.COMPLETED
    assert connection.xlen(names.lane("interactive")) == 0, "every entry is settled"


def test_a_failure_is_reported_on_the_log_too(connection: "redis.Redis[bytes]") -> None:
    add(connection, {"id": "told", "skill": "caption", "image": "data:image/png;base64,!!!"})
    result = wait(connection, "told")
    [*_, (_, last)] = connection.xrange(names.log("told"))
    event = unpack_event(last[b"e"])
    assert isinstance(event, FailedEvent)
    assert event.failure == result.failure
