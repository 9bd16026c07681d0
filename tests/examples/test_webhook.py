"""The webhook relay as a process, and a receiver that fails, forgets or is absent."""

import asyncio
import base64
import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop_schemas import names
from tests.examples.conftest import EXAMPLES, Deployment

pytest.importorskip("httpx")

SECONDS = 60.0
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NEVER = 10**6


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "webhook" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


signing = load("signing")


@dataclass
class Receiver:
    """A small HTTP server: the first `failing` posts of each job are answered with 503; it keeps every post."""

    failing: int = 0
    port: int = 0
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    taken: dict[str, Any] = field(default_factory=dict)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    def count(self, job_id: str) -> int:
        return sum(each == job_id for each, _, _ in self.posts)

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self.came:
            await self.came.wait_for(so)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
                body = await reader.readexactly(int(headers["content-length"]))
                status = await self._answer(headers, body)
                writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: 0\r\n\r\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the relay has closed the connection, or the server ends
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, headers: Mapping[str, str], body: bytes) -> int:
        job_id = signing.verify(SECRET, headers, body)
        async with self.came:
            self.posts.append((job_id, dict(headers), body))
            fails = self.count(job_id) <= self.failing
            if not fails:
                self.taken[job_id] = json.loads(body)
            self.came.notify_all()
        return 503 if fails else 204


@contextlib.asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        await receiver.talk(reader, writer)

    server = await asyncio.start_server(talk, "127.0.0.1", receiver.port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


@contextlib.contextmanager
def relaying(deployment: Deployment, receiver: Receiver, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    settings = {
        "WEBHOOK_URL": f"http://127.0.0.1:{receiver.port}/answers",
        "WEBHOOK_SECRET": SECRET,
        "WEBHOOK_PAUSE_SECONDS": "0.01",
        "NO_PROXY": "127.0.0.1",
        **variables,
    }
    command = [sys.executable, str(EXAMPLES / "webhook" / "relay.py")]
    relay = subprocess.Popen(command, env={**deployment.variables, **settings})
    try:
        yield relay
    finally:
        relay.kill()
        relay.wait()


async def announce(deployment: Deployment, redis: Redis, question: str, **fields: object) -> str:
    """Add a job to the stream as the README shows."""
    async with deployment.client() as client:
        job = await client.prepare("query", question=question, **fields)  # type: ignore[arg-type]
        await redis.xadd("webhooks", {"job": job.id})
        return await client.submit(job)


@pytest.fixture
async def redis(streaming_deployment: Deployment) -> AsyncIterator[Redis]:
    async with Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis:
        await redis.delete("webhooks", "webhooks:failed")
        yield redis


async def emptied(redis: Redis, left: int = 0) -> None:
    """Wait until only this many entries are left."""
    async with asyncio.timeout(SECONDS):
        while await redis.xlen("webhooks") > left:
            await asyncio.sleep(0.01)


async def test_a_receiver_that_fails_twice_gets_every_result_signed(
    streaming_deployment: Deployment, redis: Redis
) -> None:
    async with receiving(Receiver(failing=2)) as receiver:
        right = await announce(streaming_deployment, redis, "tell 5", metadata={"order": 7})
        wrong = await announce(streaming_deployment, redis, "what?", image="s3://nowhere/a.png")
        with relaying(streaming_deployment, receiver) as relay:
            await receiver.until(lambda: {right, wrong} <= set(receiver.taken))
            await emptied(redis)
            relay.send_signal(signal.SIGTERM)
            assert relay.wait(SECONDS) == 0
    assert (receiver.count(right), receiver.count(wrong)) == (3, 3)
    assert receiver.taken[right]["metadata"] == {"order": 7}
    assert receiver.taken[wrong]["status"] == "failed"
    bodies = {body for job_id, _, body in receiver.posts if job_id == right}
    assert bodies == {await redis.get(names.result(right))}


async def test_a_killed_relay_delivers_its_unfinished_jobs_when_restarted(
    streaming_deployment: Deployment, redis: Redis, gate: Any
) -> None:
    async with receiving(Receiver(failing=NEVER)) as receiver:
        ended = await announce(streaming_deployment, redis, "ended")
        running = await announce(streaming_deployment, redis, f"tell 4 until {gate}")
        with relaying(streaming_deployment, receiver):
            await receiver.until(lambda: receiver.count(ended) >= 2)
        # A killed relay's XREADGROUP still waits in a Redis that has not read the closed connection: it would be handed
        # the next entry. Redis answers a PING only after it has read it.
        await redis.ping()
        receiver.failing = 0
        gate.touch()
        with relaying(streaming_deployment, receiver, WEBHOOK_RELAY="another"):
            later = await announce(streaming_deployment, redis, "later")
            await receiver.until(lambda: later in receiver.taken)
            await emptied(redis, left=2)
        assert not {ended, running} & set(receiver.taken), "what one has begun is not another's"
        with relaying(streaming_deployment, receiver):
            await receiver.until(lambda: {ended, running} <= set(receiver.taken))
            await emptied(redis)


async def test_the_relay_waits_for_an_absent_receiver_up_to_a_limit(
    streaming_deployment: Deployment, redis: Redis
) -> None:
    receiver = Receiver()
    async with receiving(receiver):
        pass  # now the port is known, and no server listens there
    job_id = await announce(streaming_deployment, redis, "hello")
    with relaying(streaming_deployment, receiver, WEBHOOK_TRIES="3"):
        await emptied(redis)
    failed: Any = await redis.xrange("webhooks:failed")
    assert [fields for _, fields in failed] == [{b"job": job_id.encode()}]
    await redis.xadd("webhooks", {"job": job_id})
    async with receiving(receiver):
        with relaying(streaming_deployment, receiver):
            await receiver.until(lambda: job_id in receiver.taken)


def test_a_signature_is_that_of_the_specification() -> None:
    """Made with the specification's own library for Python."""
    headers = signing.sign(SECRET, "msg_1", b'{"a":1}', now=1_700_000_000.5)
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1,AMaOha7DUT/0J0JMycRuYOBSvbx3WtwLd2khXXbaVj4=",
    }


@pytest.mark.parametrize(
    ("changed", "body", "later"),
    [
        ({}, b"{} ", 0),
        ({"webhook-id": "msg_2"}, b"{}", 0),
        ({"webhook-timestamp": "1700000001"}, b"{}", 0),
        ({"webhook-timestamp": "-1"}, b"{}", 0),
        ({"webhook-timestamp": "1" * 5000}, b"{}", 0),
        ({"webhook-signature": "v1,ä"}, b"{}", 0),
        ({"webhook-signature": ""}, b"{}", 0),
        ({}, b"{}", 301),
        ({}, b"{}", -301),
    ],
)
def test_a_changed_or_old_message_is_refused(changed: dict[str, str], body: bytes, later: float) -> None:
    now = 1_700_000_000
    headers = signing.sign(SECRET, "msg_1", b"{}", now=now)
    assert signing.verify(SECRET, headers, b"{}", now=now + 200) == "msg_1"
    with pytest.raises(signing.Forged):
        signing.verify(SECRET, {**headers, **changed}, body, now=now + later)


def test_one_of_several_signatures_must_match() -> None:
    headers = signing.sign(SECRET, "msg_1", b"{}", now=1)
    other = signing.sign("whsec_" + base64.b64encode(bytes(32)).decode(), "msg_1", b"{}", now=1)
    both = f"{other['webhook-signature']} {headers['webhook-signature']}"
    assert signing.verify(SECRET, {**headers, "webhook-signature": both}, b"{}", now=1) == "msg_1"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "no base64 at all, however long it may be"])
def test_a_weak_secret_is_refused(secret: str, streaming_deployment: Deployment) -> None:
    with pytest.raises(ValueError, match="24 to 64 random bytes"):
        signing.sign(secret, "msg_1", b"{}")
    with relaying(streaming_deployment, Receiver(), WEBHOOK_SECRET=secret) as relay:
        assert relay.wait(SECONDS) == 1
