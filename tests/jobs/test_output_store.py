import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import CapturingLogger

from stoop.demo.embedded import EmbeddedS3
from stoop_schemas.result import Result
from stoop_schemas.skill import Output
from stoop_schemas.state import State
from stoop_worker.jobs.fetch.fetcher import FetchConfig
from stoop_worker.jobs.output_store import OutputStore
from tests.support.recording_broker import delivery

LONG = Result(id="..", status=State.COMPLETED, skill="query", output=Output(answer="long " * 100))
GIVEN = delivery("..", attempt=2, entry_id="7-0")


def never() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> FetchConfig:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return FetchConfig(endpoint=s3.endpoint, region=s3.region, path_style=True)


async def test_a_long_output_has_a_key_of_its_delivery(s3: EmbeddedS3, store: FetchConfig) -> None:
    with OutputStore(store, f"{s3.bucket}/a/b/", least=100) as outputs:
        kept = await outputs.put(GIVEN, LONG, never())
    key = "a/b/job-../2-7-0.json"
    assert (kept.output, kept.output_address) == (None, f"s3://{s3.bucket}/{key}")
    assert json.loads(s3.client().get_object(Bucket=s3.bucket, Key=key)["Body"].read()) == {"answer": "long " * 100}


async def test_short_outputs_and_failures_stay_in_redis(s3: EmbeddedS3, store: FetchConfig) -> None:
    failed = Result(id="a", status=State.FAILED)
    with OutputStore(store, s3.bucket, least=10_000) as outputs:
        assert [await outputs.put(GIVEN, each, never()) for each in (LONG, failed)] == [LONG, failed]


async def test_outputs_stay_in_redis_while_the_store_is_away(
    s3: EmbeddedS3, store: FetchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, log = Clock(), CapturingLogger()
    monkeypatch.setattr("stoop_worker.jobs.output_store.log", log)
    away = replace(store, endpoint="http://127.0.0.1:1")
    with OutputStore(away, s3.bucket, least=0, clock=clock) as outputs:
        assert [await outputs.put(GIVEN, LONG, never()) for _ in range(3)] == [LONG] * 3
        assert [call.kwargs["problem"] for call in log.calls] == ["EndpointConnectionError"], "the others did not wait"
        clock.now = 30.0
        assert await outputs.put(GIVEN, LONG, never()) == LONG and len(log.calls) == 2
    with OutputStore(store, "no-such-bucket", least=0) as outputs:
        assert await outputs.put(GIVEN, LONG, never()) == LONG
    assert log.calls[-1].kwargs["problem"] == "NoSuchBucket" and "long" not in str(log.calls)


async def test_an_output_stays_in_redis_if_the_run_is_aborted_while_the_store_is_slow(store: FetchConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        slow = replace(store, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        stop = never()
        with OutputStore(slow, "bucket", least=0) as outputs:
            putting = asyncio.create_task(outputs.put(GIVEN, LONG, stop))
            connection, _ = await asyncio.to_thread(silent.accept)
            stop.set_result(None)
            with connection, not_paused(outputs):
                assert await putting == LONG


@contextlib.contextmanager
def not_paused(outputs: OutputStore) -> Iterator[None]:
    yield
    assert outputs._resumes_at <= outputs._clock(), "the store has not failed"
