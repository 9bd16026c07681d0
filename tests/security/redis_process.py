"""Redis servers with settings of a test's own, each for one test."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.deploy.test_redis_conf import redis_program

__all__ = ["free_port", "running_cluster", "running_redis", "running_sentinel"]

_READY = "eady to accept connections"


def free_port(first: int = 0) -> int:
    """Find a port that nobody listens on, from `first` on if that is given."""
    for port in range(first, first + 1000) if first else [0]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found: int = probe.getsockname()[1]
            return found
    raise AssertionError("no port is free")


@contextlib.contextmanager
def running_redis(folder: Path, *options: str) -> Iterator[int]:
    """Run a server with these options; yields its port once it answers."""
    port = free_port()
    with _running(_server(folder, port, *options), _READY):
        yield port


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[int]:
    """Run a Cluster of one node; yields its port once it believes that it is whole."""
    port = free_port(first=20_000)  # its bus has the port 10000 above, which must be one too
    with _running(_server(folder, port, "--cluster-enabled", "yes"), _READY) as said:
        with redis.Redis(port=port, protocol=2) as node:
            node.execute_command("CLUSTER ADDSLOTS", *range(16_384))
        _wait_for("Cluster state changed: ok", said)
        yield port


@contextlib.contextmanager
def running_sentinel(folder: Path, master: str, port: int) -> Iterator[int]:
    """Run a Sentinel that watches one master; yields the Sentinel's port."""
    own = free_port()
    conf = folder / "sentinel.conf"
    conf.write_text(
        f"port {own}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {master} 127.0.0.1 {port} 1\n"
        f"sentinel down-after-milliseconds {master} 1000\n"
    )
    with _running([redis_program(), str(conf), "--sentinel"], "+monitor master"):
        yield own


def _server(folder: Path, port: int, *options: str) -> list[str]:
    fixed = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    return [redis_program(), *fixed, *options]


@contextlib.contextmanager
def _running(command: list[str], ready: str) -> Iterator[Iterator[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            _wait_for(ready, process.stdout)
            yield process.stdout
        finally:
            process.kill()


def _wait_for(words: str, lines: Iterator[str]) -> None:
    said = []
    for line in lines:
        said.append(line)
        if words in line:
            return
    pytest.fail("".join(said))
