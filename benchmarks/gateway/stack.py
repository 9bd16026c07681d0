"""Redis, a worker with the echo engine, and a gateway, as processes of this machine."""

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stoop.config import ProducerConfig
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import embedded_redis

__all__ = ["Stack", "running_stack"]


@dataclass(frozen=True)
class Stack:
    """The addresses and processes of the stack."""

    config: ProducerConfig
    host: str
    port: int
    gateway_pid: int
    grpc: str = ""

    def cpu_seconds(self) -> float:
        """Return the CPU time that the gateway has used."""
        fields = Path(f"/proc/{self.gateway_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Return the gateway's resident memory."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.gateway_pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


@contextlib.contextmanager
def running_stack(*more: str, variables: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Run all of it inside the `with`; `more` are further flags of the gateway, `variables` further ones of both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis:
            environment = {**os.environ, "STOOP_REDIS_URL": redis.url, "STOOP_READY_FILE": str(folder / "ready")}
            environment |= variables or {}
            worker = _process("echo_worker", folder, environment, ["-m", "benchmarks.gateway.echo_worker"])
            worker.answers = lambda pid: (folder / "ready").exists()
            flags = ["-m", "stoop", "serve", "--open", "--port", "0", "--log-level", "warning", *more]
            gateway = _process("gateway", folder, environment, flags)
            ready = "answers gRPC on " if "--grpc" in more else "listens on"
            gateway.answers = lambda pid: ready in gateway.log.read_text()
            try:
                worker.start()
                gateway.start()
                found = re.search(r"http://([\d.]+):(\d+)", gateway.log.read_text())
                assert found is not None and gateway.process is not None
                config = ProducerConfig(redis_url=redis.url, timeout_seconds=60)
                grpc = gateway.log.read_text().partition("answers gRPC on ")[2].split("\n")[0]
                yield Stack(config, found[1], int(found[2]), gateway.process.pid, grpc)
            finally:
                gateway.end(signal.SIGTERM)
                worker.end(signal.SIGTERM)


def _process(name: str, folder: Path, environment: dict[str, str], flags: list[str]) -> ChildServer:
    return ChildServer(
        name=name,
        command=[sys.executable, *flags],
        log=folder / f"{name}.log",
        environment=environment,
        answers=lambda pid: True,
        start_seconds=60,
    )
