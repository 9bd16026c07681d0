"""`stoop bulk-embed` as a process that is killed twice, on a real Redis and S3 server. The test is the worker."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from benchmarks.bulk.process import BulkProcess
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop_schemas import names
from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.event import Event, FailedEvent, FinishedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Result
from stoop_schemas.state import State
from stoop_worker.jobs.broker import Delivery, Settlement
from stoop_worker.jobs.outcome import Completed, Failed
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from tests.bulk.folder import lines
from tests.bulk.vectors.embedding import embedded, read_npy, read_parquet, vector_of, write_texts

COUNT, BAD, LONG = 60, {5, 33}, {18}
TOO_LONG = Failure.of(FailureCode.CONTEXT_OVERFLOW, "a text has 9000 tokens: at most 8192")


class ExactWorker:
    """A worker that answers a given number of jobs, and counts the runs of each."""

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker
        self.runs: Counter[str] = Counter()

    async def answer(self, count: int, run: BulkProcess) -> list[str]:
        """Answer this many jobs, or fewer if the run ends first, and return their ids."""
        answered: list[str] = []
        while len(answered) < count and run.process.poll() is None:
            deliveries = await self._broker.take(count - len(answered))
            assert all(await self._broker.settle([_settlement(each) for each in deliveries]))
            answered += [each.job_id for each in deliveries]
            await self._broker.extend()
            if not deliveries:
                await self._broker.wait(0.2)
        self.runs.update(answered)
        return answered


def _settlement(delivery: Delivery) -> Settlement:
    job = unpack_job(delivery.packed)
    facts = {"id": job.id, "seq": delivery.next_seq, "attempt": delivery.attempt}
    if any("long" in text for text in job.input or ()):
        event: Event = FailedEvent(**facts, failure=TOO_LONG)
        result = Result(id=job.id, status=State.FAILED, skill=job.skill, failure=TOO_LONG)
        return Settlement(delivery, Failed(TOO_LONG), delivery.next_seq, pack(event), pack(result))
    result = embedded(job)
    event = FinishedEvent(**facts, result=result)
    return Settlement(delivery, Completed(), delivery.next_seq, pack(event), pack(result))


@pytest.fixture
async def redis_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "redis") as redis:
        yield redis.url


@pytest.fixture
async def worker(redis_url: str) -> AsyncIterator[ExactWorker]:
    broker = RedisBroker(BrokerConfig(url=redis_url, worker="exact", result_ttl=600.0))
    await broker.open()
    yield ExactWorker(broker)
    await broker.close()


def environment(redis_url: str, s3: EmbeddedS3) -> dict[str, str]:
    store = {"STOOP_S3_ENDPOINT": s3.endpoint, "STOOP_S3_PATH_STYLE": "true", "STOOP_S3_REGION": s3.region}
    return s3.environment | store | {"STOOP_REDIS_URL": redis_url}


@pytest.mark.parametrize("place", ["a folder", "s3"])
async def test_a_run_killed_twice_has_every_text_once(
    redis_url: str, s3: EmbeddedS3, worker: ExactWorker, tmp_path: Path, place: str
) -> None:
    source, out = write_texts(tmp_path / "texts.jsonl", COUNT, BAD, LONG), tmp_path / "out"
    arguments = [str(source), "--out", str(out), "--texts-per-job", "4", "--shard-rows", "10", "--json"]
    if place == "s3":
        arguments += ["--vectors", f"s3://{s3.bucket}/killed/vectors", "--format", "npy"]

    def start() -> BulkProcess:
        return BulkProcess(arguments, environment(redis_url, s3), "bulk-embed")

    # killed after it has written the lines of five jobs
    run = start()
    await worker.answer(5, run)
    await asyncio.to_thread(run.wait_until, 12)
    run.kill()
    # killed while answers wait for it in the queue
    run = start()
    await worker.answer(6, run)
    run.kill()
    run = start()
    answered = await worker.answer(COUNT, run)
    code, output, errors = run.finish()

    assert code == 0, errors
    summary = json.loads(output)
    assert (summary["completed"], summary["failed"], summary["finished"]) == (57, 3, True)
    failed = {int(line["row"]): line["failure"]["code"] for line in lines(out, "errors.jsonl")}
    assert failed == {5: "malformed", 33: "malformed", 18: "context_overflow"}
    vectors = read_npy(fetched(s3, tmp_path / "copy")) if place == "s3" else read_parquet(out)
    good = [number for number in range(1, COUNT + 1) if number not in BAD | LONG]
    assert sorted(vectors, key=lambda each: int(each[0])) == [
        (str(number), f"id-{number}", vector_of(f"text {number}")) for number in good
    ]
    assert set(worker.runs.values()) == {1}, "the queue knows a job that was submitted before a kill"
    await assert_forgotten(redis_url, answered)
    assert [path.name for path in out.iterdir() if path.suffix == ".npy" or "results" in path.name] == []


def fetched(s3: EmbeddedS3, folder: Path) -> Path:
    folder.mkdir()
    store = s3.client()
    for found in store.list_objects_v2(Bucket=s3.bucket, Prefix="killed/vectors/")["Contents"]:
        store.download_file(s3.bucket, found["Key"], str(folder / Path(found["Key"]).name))
    return folder


async def assert_forgotten(redis_url: str, job_ids: list[str]) -> None:
    async with Redis.from_url(redis_url, protocol=2) as redis:
        kept = [await redis.get(names.result(job_id)) for job_id in job_ids]
    assert not [packed for packed in kept if packed and b"embeddings" in packed], "written vectors stay in Redis"
