"""Native jobs: events that resume anywhere, cancelling, idempotency, and callers that leave."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from stoop_schemas import names
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, events_of, http_client, running_jobs


async def submit(http: Any, question: str, **headers: str) -> str:
    response = await http.post("/v1/jobs", json={"skill": "query", "question": question}, headers=headers)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/v1/jobs/{response.json()['id']}"
    return str(response.json()["id"])


async def ended(http: Any, job_id: str) -> dict[str, Any]:
    """Follow the job to its end, and return its status then."""
    async with http.stream("GET", f"/v1/jobs/{job_id}/events") as response:
        [*_, last] = [event async for event in events_of(response) if "data" in event]
    assert last["event"] == last["data"]["type"]
    job: dict[str, Any] = (await http.get(f"/v1/jobs/{job_id}")).json()
    return job


async def test_a_killed_gateway_loses_no_word_of_a_native_stream(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    one, other = start_gateway(streaming_deployment, "--open"), start_gateway(streaming_deployment, "--open")
    text, last = "", "-1"
    async with asyncio.timeout(SECONDS), http_client(one) as http, http_client(other) as elsewhere:
        job_id = await submit(http, f"tell 40 until {gate}")
        try:
            async with http.stream("GET", f"/v1/jobs/{job_id}/events") as response:
                async for event in events_of(response):
                    last = event.get("id", last)
                    text += event.get("data", {}).get("text", "")
                    if text == "".join(words(40)[:20]):
                        one.server.end(signal.SIGKILL)
        except Exception as error:
            assert "RemoteProtocolError" in type(error).__name__
        gate.touch()
        headers = {"last-event-id": last}
        async with elsewhere.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as response:
            async for event in events_of(response):
                assert int(event["id"]) == int(last) + 1
                last = event["id"]
                text += event["data"].get("text", "")
        assert text == "".join(words(40))
        assert "worker" not in event["data"]["result"]
        again = await elsewhere.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": last})
        assert (again.status_code, again.content) == (204, b"")


async def test_a_job_is_shown_and_cancelled(streaming_gateway: GatewayProcess, gate: Path) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        job_id = await submit(http, "tell 3")
        job = await ended(http, job_id)
        assert (job["status"], job["result"]["output"]) == ("completed", {"answer": "".join(words(3))})
        job_id = await submit(http, f"tell 4 until {gate}")
        assert (await http.delete(f"/v1/jobs/{job_id}")).json()["status"] in ("queued", "running")
        assert await ended(http, job_id) == {"id": job_id, "status": "cancelled"}
        for unknown in ("nobody", "0" * 32 + "-0", "%00", "a" * 500):
            for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
                assert (await http.request(method, f"/v1/jobs/{unknown}{path}")).status_code == 404


async def test_an_expired_result_is_gone_and_a_cancelled_job_needs_none(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        http_client(streaming_gateway) as http,
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
    ):
        for question, status in (("tell 1", 410), (f"tell 4 until {gate}", 200)):
            job_id = await submit(http, question)
            if status == 200:
                await http.delete(f"/v1/jobs/{job_id}")
            await ended(http, job_id)
            assert await redis.delete(names.result(job_id)) == 1
            response = await http.get(f"/v1/jobs/{job_id}")
            assert response.status_code == status, response.text
            if status == 410:
                assert (
                    response.json()["error"]["code"] == "result_expired"
                    and job_id in response.json()["error"]["message"]
                )


async def test_a_job_s_messages_follow_the_detail_of_their_images(
    streaming_gateway: GatewayProcess, streaming_deployment: Deployment
) -> None:
    async with http_client(streaming_gateway) as http, Redis.from_url(streaming_deployment.redis_url) as redis:
        for detail, most in (("low", 512 * 512), ("high", None)):
            shown = {"type": "image_url", "image_url": {"url": "s3://photos/cat.jpg", "detail": detail}}
            # a lane that no worker serves, so that the job stays there
            body = {"skill": "chat", "messages": [{"role": "user", "content": [shown]}], "lane": f"pictures-{detail}"}
            response = await http.post("/v1/jobs", json=body)
            assert response.status_code == 202, response.text
            [(_, entry)] = await redis.xrange(names.lane(f"pictures-{detail}"))
            assert json.loads(entry[b"j"]).get("settings", {}).get("max_pixels") == most
            await http.delete(response.headers["location"])


async def test_the_same_key_is_the_same_job(streaming_gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        headers = {"idempotency-key": "once", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
        first = await http.post("/v1/query", json={"question": "tell 5"}, headers=headers)
        repeated = {**headers, "traceparent": f"00-{'3' * 32}-{'4' * 16}-01"}
        again = await http.post("/v1/query", json={"question": "tell 5"}, headers=repeated)
        assert first.json()["job_id"] == again.json()["job_id"] and "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        other = await http.post("/v1/query", json={"question": "tell 6"}, headers=headers)
        assert (other.status_code, other.headers["x-should-retry"]) == (409, "false")


async def test_an_asynchronous_request_reads_its_answer_later(streaming_gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for stream in (False, True):
            asked = {"question": "tell 5", "stream": stream}
            response = await http.post("/v1/query", json=asked, headers={"prefer": "respond-async"})
            assert (response.status_code, response.headers["preference-applied"]) == (202, "respond-async")
            assert (await ended(http, response.json()["id"]))["status"] == "completed"


async def test_the_job_ends_with_its_caller_unless_he_can_come_back(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for stream, headers, status in (
            (True, {}, "cancelled"),
            (False, {}, "cancelled"),
            (True, {"idempotency-key": "back"}, "running"),
        ):
            known = len(streaming_gateway.lines)
            async with http_client(streaming_gateway) as leaving:
                asked = {"question": f"tell 4 until {gate}", "stream": stream}
                if stream:
                    async with leaving.stream("POST", "/v1/query", json=asked, headers=headers) as response:
                        async for event in events_of(response):
                            assert event["data"]["chunk"]
                            break
                else:
                    task = asyncio.create_task(leaving.post("/v1/query", json=asked))
                    while not await running_jobs(streaming_deployment):
                        await asyncio.sleep(0.05)
                    task.cancel()
                    await asyncio.wait({task})
            while len(streaming_gateway.lines) == known or streaming_gateway.lines[-1]["route"] != "/v1/query":
                await asyncio.sleep(0.05)
            job_id = streaming_gateway.lines[-1]["job"]
            if status == "cancelled":
                assert (await ended(http, job_id))["status"] == status
            else:
                assert (await http.get(f"/v1/jobs/{job_id}")).json()["status"] == status
                gate.touch()
                assert (await ended(http, job_id))["status"] == "completed"
