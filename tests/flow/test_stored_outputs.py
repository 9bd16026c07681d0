"""Outputs in the object store: real workers, clients, gateway and command line on a real Redis and a real S3 server."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop import AsyncClient, Client, OutputGone, OutputUnreadable
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop_schemas import names
from stoop_schemas.event import FinishedEvent
from stoop_schemas.result import Result
from tests.examples.conftest import Deployment, gate, new_deployment, streaming_worker
from tests.examples.streaming_child import words
from tests.gateway.conftest import StartGateway, events_of, http_client, start_gateway

__all__ = ["gate", "start_gateway"]

SECONDS = 60.0
ANSWER = "".join(words(4))


@dataclass(frozen=True)
class StoringDeployment(Deployment):
    """A deployment whose workers put every output into a folder of its bucket, and whose programs read it there."""

    folder: str = "outputs"

    @property
    def variables(self) -> dict[str, str]:
        place = f"{self.s3.bucket}/{self.folder}"
        settings = {"STOOP_OUTPUT_BUCKET": place, "STOOP_OUTPUT_BYTES": "0", "STOOP_STORE_OUTPUTS": "true"}
        return {**super().variables, **settings}

    def keys(self, job_id: str) -> list[str]:
        """The keys of the objects of a job."""
        listed = self.s3.client().list_objects_v2(Bucket=self.s3.bucket, Prefix=f"{self.folder}/job-{job_id}/")
        return [found["Key"] for found in listed.get("Contents", ())]


class StorelessDeployment(StoringDeployment):
    """A deployment whose programs do not reach the store."""

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, "STOOP_S3_ENDPOINT": "http://127.0.0.1:1"}


class RefusedDeployment(StoringDeployment):
    """A deployment whose programs the store refuses."""

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, "AWS_SECRET_ACCESS_KEY": "wrong"}


@pytest.fixture
def deployment(s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoringDeployment]:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "redis") as redis:
        made = new_deployment(redis, s3)
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        yield StoringDeployment(made.redis, made.s3, made.config.replace(store_outputs=True), tmp_path.name)


@pytest.fixture
def worker(deployment: StoringDeployment, tmp_path: Path) -> Iterator[ChildServer]:
    worker = streaming_worker(deployment, tmp_path)
    worker.start()
    yield worker
    worker.end(signal.SIGKILL)


def stored(deployment: StoringDeployment, key: str) -> object:
    return json.loads(deployment.s3.client().get_object(Bucket=deployment.s3.bucket, Key=key)["Body"].read())


@pytest.mark.usefixtures("worker")
async def test_everybody_reads_an_output_as_if_it_were_in_redis(
    deployment: StoringDeployment, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(deployment, "--open")
    async with asyncio.timeout(SECONDS), deployment.client() as client, http_client(gateway) as http:
        job = await client.prepare("query", question="tell 4", stream=True)
        job_id = await client.submit(job)
        result = await client.result(job_id)
        assert result.output is not None and (result.output.answer, result.output_address) == (ANSWER, None)
        assert await client.stored_result(job_id) == result
        last = [event async for event in client.stream(job_id)][-1]
        assert isinstance(last, FinishedEvent) and last.result == result
        assert (await client.query(question="tell 4"))["answer"] == ANSWER
        async with Redis.from_url(deployment.redis_url, protocol=2) as redis:
            packed = json.loads(await redis.get(names.result(job_id)))
            log = json.loads((await redis.xrevrange(names.log(job_id), count=1))[0][1][b"e"])
        [key] = deployment.keys(job_id)
        assert packed["output_address"] == f"s3://{deployment.s3.bucket}/{key}" and "output" not in packed
        assert log["result"] == packed and stored(deployment, key) == {"answer": ANSWER}
        response = await http.get(f"/v1/jobs/{job_id}")
        assert response.json()["result"]["output"] == {"answer": ANSWER}
        response = await http.post("/v1/query", json={"question": "tell 4"})
        assert response.json()["answer"] == ANSWER and deployment.keys(response.headers["x-stoop-job-id"])
    printed = await asyncio.to_thread(_command, deployment, "result", job_id)
    assert printed["output"] == {"answer": ANSWER}
    assert await asyncio.to_thread(_by_another_thread, deployment) == ANSWER


def _command(deployment: StoringDeployment, *arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "stoop", *arguments, "--json"]
    found: dict[str, object] = json.loads(subprocess.check_output(command, env=deployment.variables, timeout=SECONDS))
    return found


def _by_another_thread(deployment: StoringDeployment) -> object:
    with Client(deployment.config) as client:
        return client.query(question="tell 4")["answer"]


@pytest.mark.usefixtures("worker")
async def test_the_output_of_a_producer_that_does_not_ask_for_it_stays_in_redis(deployment: StoringDeployment) -> None:
    async with asyncio.timeout(SECONDS), AsyncClient(deployment.config, store_outputs=False) as client:
        job_id = await client.submit(await client.prepare("query", question="tell 4"))
        assert _answer(await client.result(job_id)) == ANSWER
    assert deployment.keys(job_id) == []


@pytest.mark.timeout(180)
async def test_a_worker_killed_between_the_object_and_the_settlement_loses_nothing(
    deployment: StoringDeployment, worker: ChildServer, tmp_path: Path, gate: Path
) -> None:
    async with deployment.client() as client, Redis.from_url(deployment.redis_url, protocol=2) as redis:
        job_id = await client.submit(await client.prepare("query", question=f"tell 4 until {gate}"))
        while await redis.hget(names.job(job_id), "state") != b"running":
            await asyncio.sleep(0.02)
        # nothing can be settled from now on
        await redis.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
        gate.touch()
        while not deployment.keys(job_id):
            await asyncio.sleep(0.02)
        worker.end(signal.SIGKILL)
        await redis.execute_command("CLIENT", "UNPAUSE")
        assert await client.stored_result(job_id) is None
        other = streaming_worker(deployment, _folder(tmp_path / "other"))
        other.start()
        try:
            async with asyncio.timeout(SECONDS):
                result = await client.result(job_id)
        finally:
            other.end(signal.SIGKILL)
        assert (_answer(result), result.attempt) == (ANSWER, 2)
        assert len(deployment.keys(job_id)) == 2, "the second worker has overwritten nothing"
        assert await redis.hget(names.totals(), "completed") == b"1"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _answer(result: Result) -> str | None:
    return None if result.output is None else result.output.answer


@pytest.mark.usefixtures("worker")
async def test_an_output_that_was_damaged_or_deleted_ends_every_stream(
    deployment: StoringDeployment, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(deployment, "--open")
    async with asyncio.timeout(SECONDS), deployment.client() as client, http_client(gateway) as http:
        job_id = await client.submit(await client.prepare("query", question="tell 4", stream=True))
        seqs = [event.seq async for event in client.stream(job_id)]
        [key] = deployment.keys(job_id)
        deployment.s3.client().put_object(Bucket=deployment.s3.bucket, Key=key, Body=b'{"answer":')
        with pytest.raises(OutputUnreadable, match=job_id):
            await client.result(job_id)
        assert (await _last_failure(http, job_id, seqs[-2], seqs[-1]))["code"] == "internal"
        deployment.s3.client().delete_object(Bucket=deployment.s3.bucket, Key=key)
        with pytest.raises(OutputGone, match=job_id):
            await client.result(job_id)
        response = await http.get(f"/v1/jobs/{job_id}")
        assert (response.status_code, response.json()["error"]["code"]) == (410, "result_expired")
        assert "not in the object store any more" in response.json()["error"]["message"]
        for after in (-1, seqs[-2]):
            failure = await _last_failure(http, job_id, after, seqs[-1])
            assert failure["code"] == "result_expired" and "submit the job again" in failure["message"]


async def _last_failure(http: Any, job_id: str, after: int, last: int) -> dict[str, Any]:
    """Follow a job's events; return the failure at their end, after which a browser gets nothing more."""
    address = f"/v1/jobs/{job_id}/events"
    async with http.stream("GET", address, headers={"last-event-id": str(after)}) as response:
        events = [event async for event in events_of(response) if "data" in event]
    assert [int(event["id"]) for event in events] == list(range(after + 1, last + 1)), "each event once"
    assert (events[-1]["event"], events[-1]["data"]["type"]) == ("failed", "failed")
    assert (await http.get(address, headers={"last-event-id": events[-1]["id"]})).status_code == 204
    failure: dict[str, Any] = events[-1]["data"]["failure"]
    return failure


@pytest.mark.usefixtures("worker")
async def test_a_stream_ends_early_while_the_store_is_away_so_that_a_browser_comes_again(
    deployment: StoringDeployment, start_gateway: StartGateway
) -> None:
    away = StorelessDeployment(deployment.redis, deployment.s3, deployment.config)
    async with asyncio.timeout(SECONDS), deployment.client() as client:
        job_id = await client.submit(await client.prepare("query", question="tell 4", stream=True))
        seqs = [event.seq async for event in client.stream(job_id)]
        async with http_client(start_gateway(away, "--open")) as http:
            response = await http.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": str(seqs[-2])})
            assert (response.status_code, "event: finished" in response.text) == (200, False)
            response = await http.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": str(seqs[-1])})
            assert response.status_code == 204


@pytest.mark.usefixtures("worker")
async def test_a_stream_ends_with_a_failure_if_the_store_refuses_its_answer(
    deployment: StoringDeployment, start_gateway: StartGateway
) -> None:
    async with asyncio.timeout(SECONDS), deployment.client() as client:
        job_id = await client.submit(await client.prepare("query", question="tell 4", stream=True))
        seqs = [event.seq async for event in client.stream(job_id)]
        async with http_client(
            start_gateway(RefusedDeployment(deployment.redis, deployment.s3, deployment.config), "--open")
        ) as http:
            failure = await _last_failure(http, job_id, seqs[-2], seqs[-1])
            assert failure["code"] == "gateway_misconfigured" and "s3:ListBucket" in failure["message"]
            response = await http.get(f"/v1/jobs/{job_id}")
            assert (response.status_code, response.json()["error"]["code"]) == (500, "gateway_misconfigured")
            assert response.headers["x-should-retry"] == "false"
