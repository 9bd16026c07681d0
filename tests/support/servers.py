"""Real servers for tests: one Redis and one S3 server a test run, started when a test first asks for them."""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3

__all__ = ["free_port", "free_ports", "redis_server", "redis_url", "s3"]


def free_port() -> int:
    """Return a port of this machine on which no program listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def free_ports(count: int) -> int:
    """Return the first of `count` ports in a row on which no program listens at the moment."""
    # below the ports that the system gives to connections
    for first in range(20_000 + os.getpid() % 10_000, 32_000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise RuntimeError("no ports are free")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EmbeddedRedis]":
    """A Redis server of this test run; a test that kills it must restart it."""
    from stoop.demo.embedded import embedded_redis

    with pytest.MonkeyPatch.context() as patch:
        # tests empty the server they use, so it must be their own
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with embedded_redis(tmp_path_factory.mktemp("redis")) as server:
            yield server


@pytest.fixture
def redis_url(redis_server: "EmbeddedRedis") -> str:
    """The address of a Redis server that holds nothing yet: no keys, no scripts, no clients' settings."""
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
        client.script_flush()
    return redis_server.url


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EmbeddedS3]":
    """An S3 server of this test run with an empty bucket; tests keep apart by their keys."""
    from stoop.demo.embedded import embedded_s3

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_S3_ENDPOINT", raising=False)
        patch.delenv("STOOP_BUCKET", raising=False)
        with embedded_s3(tmp_path_factory.mktemp("s3") / "files") as server:
            yield server
