"""The servers of the examples (Redis, S3 and workers), and the examples themselves as processes."""

import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis
from stoop.demo.pictures import Picture, draw_pictures
from stoop.demo.worker_process import find_model, running_worker
from tests.support.worker_process import worker_process

__all__ = [
    "ROOT",
    "Deployment",
    "Start",
    "demo_deployment",
    "gate",
    "new_deployment",
    "start",
    "streaming_deployment",
    "streaming_worker",
]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

Start = Callable[..., str]


@dataclass(frozen=True)
class Deployment:
    """A Redis with a worker on it, the store of its images, and the variables by which programs find them."""

    redis: EmbeddedRedis
    s3: EmbeddedS3
    config: ProducerConfig

    @property
    def redis_url(self) -> str:
        return self.redis.url

    @property
    def variables(self) -> dict[str, str]:
        """A whole environment."""
        variables = {
            "STOOP_REDIS_URL": self.redis_url,
            "STOOP_BUCKET": self.s3.bucket,
            "STOOP_S3_ENDPOINT": self.s3.endpoint,
            "STOOP_S3_REGION": self.s3.region,
            "STOOP_S3_PATH_STYLE": "true",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "PYTHONUNBUFFERED": "1",
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        }
        return {**os.environ, **self.s3.environment, **variables}

    def client(self) -> AsyncClient:
        return AsyncClient(self.config)


def new_deployment(redis: EmbeddedRedis, s3: EmbeddedS3) -> Deployment:
    store = {"bucket": s3.bucket, "s3_endpoint": s3.endpoint, "s3_region": s3.region, "s3_path_style": True}
    return Deployment(redis, s3, ProducerConfig(redis_url=redis.url, timeout_seconds=60, **store))


def streaming_worker(deployment: Deployment, folder: Path) -> ChildServer:
    """A worker with the engine of `streaming_child`, to be started and ended by the caller."""
    return worker_process("tests.examples.streaming_worker", folder, deployment.variables)


@pytest.fixture(scope="session")
def streaming_deployment(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A worker with the engine of `streaming_child`."""
    folder = tmp_path_factory.mktemp("streaming_deployment")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with embedded_redis(folder / "redis") as redis:
            deployment = new_deployment(redis, s3)
            worker = streaming_worker(deployment, folder)
            worker.start()
            yield deployment
            worker.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def demo_deployment(
    s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, Picture, str]]:
    """A worker with the demo's model, a picture, and its address."""
    folder = tmp_path_factory.mktemp("demo_deployment")
    [picture] = draw_pictures(1, seed=1)
    s3.client().put_object(Bucket=s3.bucket, Key="examples/shapes.png", Body=picture.encoded)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        flags = {"lanes": "interactive,bulk", "threads": "1"}
        with embedded_redis(folder / "redis") as redis, running_worker(folder, find_model(None), redis, s3, flags):
            yield new_deployment(redis, s3), picture, f"s3://{s3.bucket}/examples/shapes.png"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that a job of a streaming worker waits for in its middle."""
    return tmp_path / "gate"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program of an example, `start(folder, *command, ready=…, **variables)`, and returns the first group of
    the match of `ready` in its log; ends the program with the test."""
    started: list[ChildServer] = []

    def start(folder: str, *command: str, ready: str, environment: Mapping[str, str]) -> str:
        log = tmp_path / f"{folder}-{len(started)}.log"
        pattern = re.compile(ready)
        server = ChildServer(
            name=folder,
            command=[sys.executable, *command],
            log=log,
            environment=environment,
            answers=lambda pid: bool(pattern.search(log.read_text())),
            start_seconds=60,
        )
        server.start()
        started.append(server)
        found = pattern.search(log.read_text())
        assert found is not None
        return found[1] if found.re.groups else found[0]

    yield start
    for server in started:
        server.end(signal.SIGTERM)
