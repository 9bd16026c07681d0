"""Redis servers with a test's own settings, each for one test."""

import contextlib
import random
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.deploy.test_redis_conf import redis_program

__all__ = [
    "SlotMove",
    "free_port",
    "meet",
    "running_cluster",
    "running_node",
    "running_redis",
    "running_sentinel",
    "running_two_nodes",
]

_READY = "eady to accept connections"
# these, and those of a Cluster's bus, lie below the ports that systems give to outgoing connections
_PORTS = range(10_000, 20_000)
_TO_BUS = 10_000


def free_port() -> int:
    """Find a port whose bus port is free too, at random, because other tests look for one at the same time."""
    for _ in range(1000):
        port = random.choice(_PORTS)
        with socket.socket() as own, socket.socket() as bus, contextlib.suppress(OSError):
            own.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + _TO_BUS))
            return port
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
    port = free_port()
    with _running(_server(folder, port, "--cluster-enabled", "yes"), _READY) as output:
        with redis.Redis(port=port, protocol=2) as node:
            node.execute_command("CLUSTER ADDSLOTS", *range(16_384))
        _wait_for("Cluster state changed: ok", output)
        yield port


@contextlib.contextmanager
def running_two_nodes(folder: Path) -> Iterator[tuple[int, int]]:
    """Run a Cluster of two nodes, the second with one slot and about to get more; yields their ports."""
    with contextlib.ExitStack() as stack:
        ports = []
        for name in ("one", "two"):
            (folder / name).mkdir(parents=True)
            ports.append(stack.enter_context(running_node(folder / name)))
        first, second = (stack.enter_context(redis.Redis(port=port, protocol=2)) for port in ports)
        first.execute_command("CLUSTER ADDSLOTS", *range(16_383))
        second.execute_command("CLUSTER ADDSLOTS", 16_383)  # a node that loses its last one becomes a replica
        meet(*ports)
        yield ports[0], ports[1]


def meet(*ports: int) -> None:
    """Let two nodes know each other and, between them, of all slots."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(redis.Redis(port=port, protocol=2)) for port in ports)
        first.execute_command("CLUSTER MEET", "127.0.0.1", ports[1])
        for node in (first, second):
            while not _knows_all(node):
                select.select([], [], [], 0.05)


@contextlib.contextmanager
def running_node(folder: Path) -> Iterator[int]:
    """Run one node of a Cluster, which knows no other yet; yields its port."""
    port = free_port()
    with _running(_server(folder, port, "--cluster-enabled", "yes"), _READY):
        yield port


def _knows_all(node: "redis.Redis") -> bool:
    facts = node.execute_command("CLUSTER INFO")
    wanted = {"cluster_state": "ok", "cluster_slots_ok": "16384", "cluster_known_nodes": "2"}
    return {name: facts[name] for name in wanted} == wanted


class SlotMove:
    """The move of one slot between two nodes, step by step, as `redis-cli --cluster reshard` does it."""

    def __init__(self, source: int, target: int, key: str) -> None:
        self._source, self._target = redis.Redis(port=source, protocol=2), redis.Redis(port=target, protocol=2)
        self._port = target
        self._slot = self._source.execute_command("CLUSTER KEYSLOT", key)
        self._ids = [node.execute_command("CLUSTER MYID").decode() for node in (self._source, self._target)]

    def begin(self) -> None:
        """Mark the slot as moving; its keys stay where they are."""
        self._target.execute_command("CLUSTER SETSLOT", self._slot, "IMPORTING", self._ids[0])
        self._source.execute_command("CLUSTER SETSLOT", self._slot, "MIGRATING", self._ids[1])

    def keys(self, most: int) -> bool:
        """Move some keys; False if there were none left."""
        keys = self._source.execute_command("CLUSTER GETKEYSINSLOT", self._slot, most)
        if keys:
            self._source.execute_command("MIGRATE", "127.0.0.1", self._port, "", 0, 5000, "KEYS", *keys)
        return bool(keys)

    def end(self) -> None:
        """Announce the slot's new owner, and disconnect."""
        for node in (self._target, self._source):
            node.execute_command("CLUSTER SETSLOT", self._slot, "NODE", self._ids[1])
            node.close()


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
    fixed = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--hz", "100"]
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
    seen = []
    for line in lines:
        seen.append(line)
        if words in line:
            return
    pytest.fail("".join(seen))
