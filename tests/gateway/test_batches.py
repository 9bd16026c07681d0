"""Files and batches: by OpenAI's own client, and by gateways that die in the middle."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop.demo.child_server import ChildServer
from stoop_schemas import names
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, http_client, running_jobs

openai = pytest.importorskip("openai")


def line(number: int, question: str, **more: Any) -> dict[str, Any]:
    body = {"model": "moondream3-preview", "messages": [{"role": "user", "content": question}], **more}
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def jsonl(*lines: Any) -> bytes:
    return b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in lines)


async def store(http: Any, content: bytes) -> str:
    response = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def begun(http: Any, content: bytes, endpoint: str = "/v1/chat/completions") -> str:
    asked = {"input_file_id": await store(http, content), "endpoint": endpoint, "completion_window": "24h"}
    response = await http.post("/v1/batches", json=asked)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def ended(http: Any, batch_id: str) -> dict[str, Any]:
    while True:
        batch: dict[str, Any] = (await http.get(f"/v1/batches/{batch_id}")).json()
        if batch["status"] in ("completed", "failed", "cancelled"):
            return batch
        await asyncio.sleep(0.1)


async def runs(deployment: Deployment, http: Any, text: str) -> bool:
    """Return whether a job runs whose question contains the text."""
    return any(
        [text in (await http.get(f"/v1/jobs/{job_id}/record")).text for job_id in await running_jobs(deployment)]
    )


async def lines_of(http: Any, file_id: str | None) -> list[dict[str, Any]]:
    response = await http.get(f"/v1/files/{file_id}/content")
    assert response.status_code == 200, response.text
    return [json.loads(each) for each in response.text.splitlines()]


async def test_openais_client_runs_a_batch(streaming_gateway: GatewayProcess) -> None:
    content = jsonl(
        *(line(i, f"tell {i + 1}") for i in range(5)),
        line(5, "tell 1", tools=[{"type": "function"}]),
        b"no json\n",
        {"id": 7, "skill": "query", "question": "tell 2"},
        b"\n",
    )
    async with (
        asyncio.timeout(SECONDS),
        http_client(streaming_gateway) as http,
        openai.AsyncOpenAI(base_url=f"{streaming_gateway.address}/v1", api_key="any") as client,
    ):
        file = await client.files.create(file=("in.jsonl", content), purpose="batch")
        assert (file.bytes, file.filename, file.status) == (len(content), "in.jsonl", "processed")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"for": "me"}
        )
        assert await ended(http, batch.id)
        batch = await client.batches.retrieve(batch.id)
        assert (batch.status, batch.metadata) == ("completed", {"for": "me"})
        assert batch.request_counts.model_dump() == {"total": 8, "completed": 6, "failed": 2}
        answers = [json.loads(each) for each in (await client.files.content(batch.output_file_id)).text.splitlines()]
        bodies = {each["custom_id"]: each["response"]["body"] for each in answers}
        for i in range(5):
            assert bodies[f"line-{i}"]["choices"][0]["message"]["content"] == "".join(words(i + 1))
        assert bodies["7"]["answer"] == "".join(words(2))
        failed = await lines_of(http, batch.error_file_id)
        assert {(each["custom_id"], each["response"]["body"]["error"]["code"]) for each in failed} == {
            ("line-5", "unsupported_parameter"),
            (None, "invalid_line"),
        }
        assert batch.id in [each.id async for each in client.batches.list(limit=2)]
        assert file.id in [each.id async for each in client.files.list()]
        assert (await client.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)


async def test_a_killed_gateway_costs_no_line(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    one = start_gateway(streaming_deployment, "--open")
    async with asyncio.timeout(SECONDS), http_client(one) as http:
        questions = [f"tell 4 until {gate}" if i % 2 else "tell 2" for i in range(12)]
        batch_id = await begun(http, jsonl(*(line(i, each) for i, each in enumerate(questions))))
        while not await running_jobs(streaming_deployment):
            await asyncio.sleep(0.05)
        one.server.end(signal.SIGKILL)
    other = start_gateway(streaming_deployment, "--open")
    async with asyncio.timeout(SECONDS), http_client(other) as http:
        gate.touch()
        batch = await ended(http, batch_id)
        assert batch["request_counts"] == {"total": 12, "completed": 12, "failed": 0}
        lines = await lines_of(http, batch["output_file_id"])
        assert sorted(each["custom_id"] for each in lines) == sorted(f"line-{i}" for i in range(12))


async def test_two_queues_share_a_bucket_and_each_runs_its_own_batches(
    streaming_deployment: Deployment,
    streaming_gateway: GatewayProcess,
    killable_worker: tuple[Deployment, ChildServer],
    start_gateway: StartGateway,
    gate: Path,
) -> None:
    other_deployment, _ = killable_worker
    assert other_deployment.s3.bucket == streaming_deployment.s3.bucket
    other = start_gateway(other_deployment, "--open")
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http, http_client(other) as other_http:
        batch_id = await begun(http, jsonl(line(0, f"tell 2 until {gate}")))
        while not await runs(streaming_deployment, http, str(gate)):
            await asyncio.sleep(0.05)
        for _ in range(2):  # the second is found by a look that began after the first batch was there
            assert (await ended(other_http, await begun(other_http, jsonl(line(0, "tell 1")))))["status"] == "completed"
        assert not await runs(other_deployment, other_http, str(gate))
        gate.touch()
        counts = {"total": 1, "completed": 1, "failed": 0}
        assert (await ended(http, batch_id))["request_counts"] == counts


async def test_a_wrong_list_of_unfinished_batches_stops_no_batch(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway
) -> None:
    deployment, _ = killable_worker
    lost = json.dumps({"bucket": deployment.s3.bucket, "tenant": None})
    elsewhere = {f"batch-{9:024}": json.dumps({"bucket": "another", "tenant": None})}
    async with (
        asyncio.timeout(SECONDS),
        http_client(start_gateway(deployment, "--open")) as http,
        Redis.from_url(deployment.redis_url, protocol=2) as redis,
    ):
        for wrong in (
            "no JSON",
            json.dumps({**{f"batch-{i:024}": lost for i in range(3)}, "../up": lost, **elsewhere}),
        ):
            await redis.set(names.OPEN_BATCHES, wrong)
            assert (await ended(http, await begun(http, jsonl(line(0, "tell 1")))))["status"] == "completed"
        while json.loads(await redis.get(names.OPEN_BATCHES)) != elsewhere:
            await asyncio.sleep(0.05)


async def test_a_damaged_batch_is_logged_once_and_hides_no_other(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway
) -> None:
    deployment, _ = killable_worker
    damaged = f"batch-{8:024}"
    gateway = start_gateway(deployment, "--open")
    store = deployment.s3.client()
    async with (
        asyncio.timeout(SECONDS),
        http_client(gateway) as http,
        Redis.from_url(deployment.redis_url, protocol=2) as redis,
    ):
        await ended(http, whole := await begun(http, jsonl(line(0, "tell 1"))))
        kept = store.list_objects_v2(Bucket=deployment.s3.bucket, Prefix="batches/")["Contents"]
        [state] = [each["Key"] for each in kept if each["Key"].endswith(f"{whole}/state.json")]
        state = state.replace(whole, damaged)
        store.put_object(Bucket=deployment.s3.bucket, Key=state, Body=b"{")
        place = json.dumps({"bucket": deployment.s3.bucket, "tenant": None})
        await redis.set(names.OPEN_BATCHES, json.dumps({damaged: place}))
        for _ in range(3):  # at each of them the gateway looks for batches
            await ended(http, await begun(http, jsonl(line(0, "tell 1"))))
        assert gateway.log.count("is damaged") == 1, gateway.log
        shown = await http.get(f"/v1/batches/{damaged}")
        assert (shown.status_code, shown.json()["error"]["code"]) == (500, "batch_damaged")
        listed = [each["id"] for each in (await http.get("/v1/batches")).json()["data"]]
        assert whole in listed and damaged not in listed
        store.delete_object(Bucket=deployment.s3.bucket, Key=state)
        while json.loads(await redis.get(names.OPEN_BATCHES)):
            await asyncio.sleep(0.05)


async def test_a_batch_that_redis_lost_can_be_cancelled(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway, gate: Path
) -> None:
    deployment, _ = killable_worker
    one = start_gateway(deployment, "--open")
    async with asyncio.timeout(SECONDS), Redis.from_url(deployment.redis_url, protocol=2) as redis:
        async with http_client(one) as http:
            batch_id = await begun(http, jsonl(line(0, f"tell 2 until {gate}")))
            while not await running_jobs(deployment):
                await asyncio.sleep(0.05)
            one.server.end(signal.SIGKILL)
        await redis.delete(names.OPEN_BATCHES)
        async with http_client(start_gateway(deployment, "--open")) as http:
            await http.post(f"/v1/batches/{batch_id}/cancel")
            assert (await ended(http, batch_id))["status"] == "cancelled"


async def test_a_batch_that_redis_refuses_is_not_stored(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway
) -> None:
    deployment, _ = killable_worker
    async with (
        asyncio.timeout(SECONDS),
        http_client(start_gateway(deployment, "--open")) as http,
        Redis.from_url(deployment.redis_url, protocol=2) as redis,
    ):
        before = {each["id"] for each in (await http.get("/v1/batches")).json()["data"]}
        await redis.rpush(names.OPEN_BATCHES, "no string")
        file_id = await store(http, jsonl(line(0, "tell 1")))
        wanted = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        assert (await http.post("/v1/batches", json=wanted)).is_server_error
        assert {each["id"] for each in (await http.get("/v1/batches")).json()["data"]} == before


async def test_a_batch_is_cancelled_and_wrong_ones_are_refused(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        batch_id = await begun(
            http, jsonl(line(0, f"tell 2 until {gate}"), *(line(i, "tell 1") for i in range(1, 250)))
        )
        # cancelled before its first part runs, it would answer nothing
        while not await runs(streaming_deployment, http, str(gate)):
            await asyncio.sleep(0.05)
        assert (await http.post(f"/v1/batches/{batch_id}/cancel")).json()["status"] == "cancelling"
        gate.touch()
        batch = await ended(http, batch_id)
        counts = {"total": 250, "completed": 200, "failed": 0}
        assert (batch["status"], batch["request_counts"]) == ("cancelled", counts)
        empty = await ended(http, await begun(http, b"\n"))
        assert (empty["status"], empty["errors"]["data"][0]["code"]) == ("failed", "invalid_file")
        file_id = await store(http, jsonl(line(0, "tell 1")))
        asked = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        for wrong, status in (
            ({"input_file_id": "file-" + "0" * 24}, 404),
            ({"input_file_id": "../../secrets"}, 404),
            ({"endpoint": "/v1/embeddings"}, 400),
            ({"completion_window": "1h"}, 400),
        ):
            assert (await http.post("/v1/batches", json={**asked, **wrong})).status_code == status
        for method, path in (("GET", ""), ("POST", "/cancel")):
            assert (await http.request(method, f"/v1/batches/batch-{'0' * 24}{path}")).status_code == 404
        response = await http.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"")})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "purpose")
        assert (await http.get("/v1/files?limit=none")).status_code == 400
