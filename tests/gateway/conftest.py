"""Gateways as processes, on the workers that the examples run against."""

import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import CapturingLogger

from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.pictures import Picture
from stoop_schemas import names
from tests.examples.conftest import (
    Deployment,
    demo_deployment,
    gate,
    new_deployment,
    streaming_deployment,
    streaming_worker,
)
from tests.support.speech_worker import speech_worker

httpx = pytest.importorskip("httpx")

__all__ = [
    "GRPC",
    "SECONDS",
    "GatewayProcess",
    "StartGateway",
    "demo_deployment",
    "demo_gateway",
    "events_of",
    "gate",
    "http_client",
    "killable_worker",
    "log",
    "running_jobs",
    "speech_gateway",
    "start_gateway",
    "streaming_deployment",
    "streaming_gateway",
]

SECONDS = 60.0
GRPC = ("--grpc", "127.0.0.1:0")
"""Flags of a gateway that speaks gRPC, too."""


@dataclass(frozen=True)
class GatewayProcess:
    """A gateway: its address and its process, whose log holds one JSON line for each request."""

    address: str
    server: ChildServer

    @property
    def log(self) -> str:
        return self.server.log.read_text()

    @property
    def grpc(self) -> str:
        """The address of a gateway with the flag `--grpc`."""
        return self.log.partition("answers gRPC on ")[2].split("\n")[0]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of the access log about the requests that have ended."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]


StartGateway = Callable[..., GatewayProcess]


def _start_gateway(folder: Path, deployment: Deployment, *flags: str) -> GatewayProcess:
    server = ChildServer(
        name="the gateway",
        command=[sys.executable, "-m", "stoop", "serve", "--port", "0", *flags],
        log=folder / "gateway.log",
        environment=deployment.variables,
        answers=lambda pid: (folder / "gateway.log").read_text().count(" on ") == 1 + ("--grpc" in flags),
        start_seconds=60,
    )
    server.start()
    found = re.search(r"listens on (http://\S+)", server.log.read_text())
    assert found is not None
    return GatewayProcess(found[1], server)


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Starts a gateway, `start_gateway(deployment, *flags)`; ends it with the test."""
    started: list[GatewayProcess] = []

    def start_gateway(deployment: Deployment, *flags: str) -> GatewayProcess:
        folder = tmp_path / f"gateway-{len(started)}"
        folder.mkdir()
        started.append(_start_gateway(folder, deployment, *flags))
        return started[-1]

    yield start_gateway
    for gateway in started:
        gateway.server.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def streaming_gateway(
    streaming_deployment: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that asks for no key, over the worker with the engine of `streaming_child`."""
    gateway = _start_gateway(tmp_path_factory.mktemp("streaming_gateway"), streaming_deployment, "--open", *GRPC)
    yield gateway
    gateway.server.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def demo_gateway(
    demo_deployment: tuple[Deployment, Picture, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway on the worker with the demo's model; it asks for no key."""
    gateway = _start_gateway(tmp_path_factory.mktemp("demo_gateway"), demo_deployment[0], "--open", *GRPC)
    yield gateway
    gateway.server.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def speech_gateway(
    s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, GatewayProcess]]:
    """A queue of its own with a worker that hears tones, and a gateway on it that asks for no key."""
    folder = tmp_path_factory.mktemp("speech_gateway")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        deployment = new_deployment(stack.enter_context(embedded_redis(folder / "redis")), s3)
        stack.enter_context(speech_worker(folder, deployment.variables))
        gateway = _start_gateway(folder, deployment, "--open", *GRPC)
        stack.callback(gateway.server.end, signal.SIGKILL)
        yield deployment, gateway


@pytest.fixture
def killable_worker(
    s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Deployment, ChildServer]]:
    """A queue of the test's own, and its worker, which the test may kill and start again."""
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "redis") as redis:
        deployment = new_deployment(redis, s3)
        worker = streaming_worker(deployment, tmp_path)
        worker.start()
        yield deployment, worker
        worker.end(signal.SIGKILL)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """The log of a gateway in this process; that of an earlier one may write to a stream that is closed by now."""
    log = CapturingLogger()
    for module in ("access_log", "grpc.calls"):
        if f"stoop.gateway.{module}" in sys.modules:  # gRPC is an extra
            monkeypatch.setattr(f"stoop.gateway.{module}._log", log)
    return log


@contextlib.asynccontextmanager
async def http_client(gateway: GatewayProcess, key: str | None = None) -> AsyncIterator[Any]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.address, timeout=SECONDS, trust_env=False, headers=headers) as http:
        yield http


async def events_of(response: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the fields of each server-sent event, its data as JSON where it is; comments as {"comment": …}."""
    assert response.status_code == 200, await response.aread()
    fields: dict[str, Any] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if not line:
            if fields:
                yield fields
            fields = {}
        elif not name:
            yield {"comment": value.strip()}
        else:
            text = value.removeprefix(" ")
            fields[name] = json.loads(text) if name == "data" and text.startswith("{") else text


async def running_jobs(deployment: Deployment) -> list[str]:
    """Name the jobs that a worker has claimed and not ended."""
    async with Redis.from_url(deployment.redis_url, protocol=2) as redis:
        keys = [key async for key in redis.scan_iter(match=names.job("*"), count=1000)]
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(key, "state")
        states = await pipeline.execute()
    found = [key.decode().rpartition(":")[2] for key in keys]
    return [job_id for job_id, state in zip(found, states, strict=True) if state == b"running"]
