"""The embedded servers are real: they keep their data, and never outlive the process that started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from stoop.demo.embedded import EmbeddedServerError, embedded_redis, embedded_s3

_START_BOTH = """
import sys, time
from pathlib import Path
from stoop.demo.embedded import embedded_redis, embedded_s3
folder = Path(sys.argv[1])
with embedded_redis(folder / "redis") as queue, embedded_s3(folder / "s3") as store:
    print(queue.pid, store.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOOP_REDIS_URL", "STOOP_S3_ENDPOINT", "STOOP_BUCKET"):
        monkeypatch.delenv(name, raising=False)


def test_redis_keeps_acknowledged_writes_over_a_crash(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        before = server.pid
        server.restart()
        assert server.pid != before
        assert client.get("kept") == b"yes"


def test_redis_refuses_to_drop_jobs(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_redis_stops_with_its_block(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as server:
        pass
    assert server.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_s3_keeps_objects_over_a_restart(tmp_path: Path) -> None:
    key = "a folder/é+%20?.jpg"
    with embedded_s3(tmp_path / "s3") as server:
        client = server.client()
        client.put_object(Bucket=server.bucket, Key=key, Body=b"bytes")
        server.restart()
        assert client.get_object(Bucket=server.bucket, Key=key)["Body"].read() == b"bytes"
        assert [found["Key"] for found in client.list_objects_v2(Bucket=server.bucket)["Contents"]] == [key]


def test_s3_is_reached_past_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    with embedded_s3(tmp_path / "s3") as server:
        assert server.client().head_bucket(Bucket=server.bucket)
        assert server.environment["no_proxy"] == "example.org,127.0.0.1"


def test_s3_refuses_a_wrong_secret(tmp_path: Path) -> None:
    with embedded_s3(tmp_path / "s3") as server:
        server.secret_key = "wrong"
        client = server.client()
        with pytest.raises(client.exceptions.ClientError, match=r"403|SignatureDoesNotMatch"):
            client.list_objects_v2(Bucket=server.bucket)


def test_the_secret_stays_out_of_the_repr_and_the_command_line(tmp_path: Path) -> None:
    with embedded_s3(tmp_path / "s3") as server:
        assert server.secret_key is not None
        assert server.secret_key not in repr(server)
        assert server.secret_key.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_both_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _START_BOTH, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in pids]
        parent.send_signal(signal.SIGKILL)
    for end in ends:
        assert _ended(end, seconds=10)
        os.close(end)


def test_given_servers_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    monkeypatch.setenv("STOOP_REDIS_URL", redis_url)
    with embedded_redis(tmp_path / "unused") as server:
        assert (server.url, server.pid) == (redis_url, None)
        with pytest.raises(EmbeddedServerError, match="not ours"):
            server.kill()
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    assert not (tmp_path / "unused").exists()


def test_a_given_s3_gets_its_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded_s3(tmp_path / "s3") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("STOOP_S3_ENDPOINT", running.endpoint)
        monkeypatch.setenv("STOOP_BUCKET", "another")
        with embedded_s3(tmp_path / "unused") as given:
            assert "Contents" not in given.client().list_objects_v2(Bucket="another")


def test_a_missing_program_is_reported_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.files", lambda distribution: None)
    with pytest.raises(EmbeddedServerError, match=r"stoop\[demo\]"), embedded_redis(tmp_path):
        pass
    with pytest.raises(EmbeddedServerError, match=r"stoop\[demo\]"), embedded_s3(tmp_path):
        pass


def test_a_server_that_cannot_start_is_reported_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof").mkdir()
    with pytest.raises(EmbeddedServerError, match=r"(?i)append"), embedded_redis(tmp_path):
        pass


def _ended(process: int, seconds: float) -> bool:
    """Wait on a process descriptor, which becomes readable when the process ends."""
    import select

    return bool(select.select([process], [], [], seconds)[0])
