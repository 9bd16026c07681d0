"""The rules of streams: when the status comes, what fills a silence, and what a loss looks like."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.child_server import ChildServer
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, events_of, http_client, running_jobs


def query(question: str, stream: bool = True) -> dict[str, Any]:
    return {"question": question, "stream": stream}


async def test_silence_is_filled_and_a_late_failure_is_an_error_event(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--hold-seconds", "0.2", "--ping-seconds", "0.2")
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        async with http.stream("POST", "/v1/query", json=query(f"tell 1 until {gate}")) as response:
            events = events_of(response)
            for _ in range(3):
                assert await anext(events) == {"comment": "ping"}
            gate.touch()
            rest = [event["data"] async for event in events if "data" in event]
            assert (rest[0]["chunk"], rest[-1]["completed"]) == (words(1)[0], True)
        gate.unlink()
        async with http.stream("POST", "/v1/query", json=query(f"tell 1 until {gate}")) as response:
            events = events_of(response)
            assert await anext(events) == {"comment": "ping"}
            await http.delete(f"/v1/jobs/{response.headers['x-stoop-job-id']}")
            [last] = [event["data"] async for event in events if "data" in event]
            assert last["error"]["code"] == "cancelled" and "completed" not in last


async def test_a_failure_before_the_first_piece_is_a_status(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for stream in (True, False):
            asked, before = query(f"tell 1 until {gate}", stream), set(await running_jobs(streaming_deployment))
            waiting = asyncio.create_task(http.post("/v1/query", json=asked, headers={"x-request-id": "mine"}))
            while not (running := set(await running_jobs(streaming_deployment)) - before):
                await asyncio.sleep(0.02)
            assert (await http.delete(f"/v1/jobs/{running.pop()}")).status_code == 200
            response = await waiting
            assert (response.status_code, response.json()["error"]["code"]) == (409, "cancelled")
            assert response.headers["x-request-id"] == "mine" and response.headers["x-should-retry"] == "false"


async def test_a_stopping_gateway_says_goodbye_and_native_streams_resume_on_another(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    one, other = (
        start_gateway(streaming_deployment, "--open", "--drain-seconds", "2.2"),
        start_gateway(streaming_deployment, "--open"),
    )
    async with (
        asyncio.timeout(SECONDS),
        http_client(one) as http,
        http_client(other) as elsewhere,
        asyncio.TaskGroup() as group,
    ):
        begun = [asyncio.Event() for _ in range(3)]

        async def follow(method: str, path: str, signal_begun: asyncio.Event, **asked: Any) -> list[dict[str, Any]]:
            found = []
            async with http.stream(method, path, **asked) as response:
                async for event in events_of(response):
                    found.append(event)
                    if "chunk" in event.get("data", {}) or "choices" in event.get("data", {}) or event.get("id") == "3":
                        signal_begun.set()
            return found

        question = f"tell 8 until {gate}"
        job_id = (await http.post("/v1/jobs", json={"skill": "query", "question": question})).json()["id"]
        chat = {"model": "moondream3-preview", "messages": [{"role": "user", "content": question}], "stream": True}
        follows = [
            group.create_task(follow("POST", "/v1/query", begun[0], json=query(question))),
            group.create_task(follow("POST", "/v1/chat/completions", begun[1], json=chat)),
            group.create_task(follow("GET", f"/v1/jobs/{job_id}/events", begun[2])),
        ]
        for each in begun:
            await each.wait()
        process = one.server.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        moondream, openai, native = [await each for each in follows]
        assert moondream[-1]["data"]["error"]["code"] == "server_shutting_down"
        assert openai[-1]["data"]["error"]["code"] == "server_shutting_down"
        assert await asyncio.to_thread(process.wait, 20) == 0
        gate.touch()
        headers = {"last-event-id": native[-1]["id"]}
        async with elsewhere.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as response:
            native += [event async for event in events_of(response)]
        assert "".join(event["data"].get("text", "") for event in native) == "".join(words(8))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_killed_worker_costs_no_answer(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway, gate: Path, *, stream: bool
) -> None:
    deployment, worker = killable_worker
    gateway = start_gateway(deployment, "--open")

    def killed() -> None:
        worker.end(signal.SIGKILL)
        worker.start()

    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        text = ""
        if stream:
            async with http.stream("POST", "/v1/query", json=query(f"tell 8 until {gate}")) as response:
                async for event in events_of(response):
                    text += event.get("data", {}).get("chunk", "")
                    if text == "".join(words(8)[:4]) and not gate.exists():
                        await asyncio.to_thread(killed)
                        gate.touch()
            assert event["data"]["completed"]
        else:
            waiting = asyncio.create_task(http.post("/v1/query", json=query(f"tell 8 until {gate}", stream=False)))
            while not await running_jobs(deployment):
                await asyncio.sleep(0.02)
            await asyncio.to_thread(killed)
            gate.touch()
            text = (await waiting).json()["answer"]
        assert text == "".join(words(8))
