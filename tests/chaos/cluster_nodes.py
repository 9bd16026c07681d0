"""A Redis Cluster of several masters, which may be killed and restarted without losing an acknowledged write."""

import contextlib
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

from tests.deploy.test_redis_conf import redis_program
from tests.security.redis_process import free_port

__all__ = ["ClusterNode", "running_masters"]

_SLOTS = 16_384
_MEETINGS, _MEETING_SECONDS = 12, 5.0
_READY = "eady to accept connections"
_OPTIONS = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no"),
    *("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1", "--hz", "100"),
)


class ClusterNode:
    """One master with its files in a folder; `port` stays the same from start to start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self._command = [redis_program(), "--port", str(self.port), "--dir", str(folder), *_OPTIONS]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return once it has read its files."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        output = []
        for line in self._process.stdout:
            output.append(line)
            if _READY in line:
                return
        raise RuntimeError("".join(output))

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()

    def call(self, *command: object) -> object:
        """Run one command on this node."""
        with redis.Redis(port=self.port, protocol=2) as connection:
            return connection.execute_command(*command)  # type: ignore[no-untyped-call]

    def sees(self, nodes: int) -> bool:
        """Return whether it knows this many nodes, and that all slots are served."""
        facts = self.call("CLUSTER INFO")
        assert isinstance(facts, dict)
        wanted = {"cluster_state": "ok", "cluster_slots_ok": str(_SLOTS), "cluster_known_nodes": str(nodes)}
        return {name: facts[name] for name in wanted} == wanted


def _introduce(nodes: Sequence[ClusterNode]) -> None:
    """Let all nodes know each other; a handshake that takes too long is forgotten, so repeat it."""
    for _ in range(_MEETINGS):
        for node in nodes[1:]:
            node.call("CLUSTER MEET", "127.0.0.1", nodes[0].port)
        until = time.monotonic() + _MEETING_SECONDS
        while time.monotonic() < until:
            if all(node.sees(len(nodes)) for node in nodes):
                return
            select.select([], [], [], 0.05)
    raise RuntimeError("the nodes do not find each other")


@contextlib.contextmanager
def running_masters(folder: Path, count: int) -> Iterator[list[ClusterNode]]:
    """Run a Cluster of this many masters, which share the slots evenly; yield them once they know each other."""
    nodes = [ClusterNode(folder / f"node-{number}") for number in range(count)]
    try:
        for number, node in enumerate(nodes):
            node.start()
            node.call("CLUSTER ADDSLOTS", *range(_SLOTS * number // count, _SLOTS * (number + 1) // count))
        _introduce(nodes)
        yield nodes
    finally:
        for node in nodes:
            node.kill()
