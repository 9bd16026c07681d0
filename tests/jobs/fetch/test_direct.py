"""Reading objects without boto3: those that it reads, and those that it leaves to boto3."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from stoop.demo.embedded import EmbeddedS3
from stoop_schemas.address import ObjectAddress
from stoop_worker.jobs.fetch.direct import DirectStore
from stoop_worker.jobs.fetch.fetcher import FetchConfig, connect_store
from tests.support.authority import Authority

HOST = "127.0.0.1"
CREDENTIALS = Credentials("ID", "secret")
OBJECT = ObjectAddress("bucket", "key")
IMAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage"


@pytest.fixture(autouse=True)
def _worker_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "no_proxy",
        "NO_PROXY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.mark.parametrize(
    "key", ["plain.jpg", "a folder/b c.jpg", "ünï/図.png", "100%25%2F.jpg", "a+b&c=d;e~f.jpg", "q?"]
)
async def test_a_real_store_accepts_the_signatures(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    given = s3.client()
    given.put_object(Bucket=s3.bucket, Key=key, Body=key.encode())
    credentials = Credentials(s3.environment["AWS_ACCESS_KEY_ID"], s3.environment["AWS_SECRET_ACCESS_KEY"])
    async with direct(s3.endpoint, credentials) as store:
        assert await store.get(ObjectAddress(s3.bucket, key), 1000) == key.encode()
        assert await store.get(ObjectAddress(s3.bucket, f"{key} is missing"), 1000) is None


async def test_requests_keep_their_connection_and_name_the_version() -> None:
    async with server(IMAGE) as (endpoint, heads), direct(endpoint) as store:
        assert await store.get(OBJECT, 5) == b"image"
        assert await store.get(ObjectAddress("bucket", "key", "a+/v"), 5) == b"image"
    assert [head.split(" ")[1] for head in heads] == ["/bucket/key", "/bucket/key?versionId=a%2B%2Fv"]
    assert all("Credential=ID/" in head and "\r\nUser-Agent: stoop\r\n" in head for head in heads)


@pytest.mark.parametrize(
    "answer",
    [
        IMAGE.replace(b"5", b"6"),
        IMAGE.replace(b"200 OK", b"404 Not Found"),
        IMAGE.replace(b"Content-Length: 5", b"X: 5"),
        b"-ERR unknown command\r\n",
        b"",
    ],
    ids=["too large", "an error", "of unknown size", "not http", "nothing"],
)
async def test_an_unusual_answer_is_left_to_boto3(answer: bytes) -> None:
    async with server(answer) as (endpoint, heads), direct(endpoint) as store:
        assert await store.get(OBJECT, 5) is None
        assert heads
        count = len(heads)
        assert await store.get(OBJECT, 5) is None
        assert len(heads) > count, "the next object may be as usual"


async def test_large_objects_are_left_to_boto3() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"
    async with (
        server(answer) as (endpoint, heads),
        direct(endpoint) as store,
    ):
        async with asyncio.timeout(10):
            assert await store.get(OBJECT, 1 << 30) is None
        assert len(heads) == 1


@pytest.mark.parametrize("answer", ["301 Moved", "307 Moved", "400 Bad Request\r\nx-amz-bucket-region: eu-west-1"])
async def test_a_bucket_that_is_elsewhere_is_left_to_boto3_from_then_on(answer: str) -> None:
    reply = f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode()
    async with server(reply) as (endpoint, heads), direct(endpoint) as store:
        assert await store.get(OBJECT, 5) is None
        assert await store.get(OBJECT, 5) is None
        assert len(heads) == 1


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "a/./b"])
async def test_relative_path_steps_are_left_to_boto3(key: str) -> None:
    async with server(IMAGE) as (endpoint, heads), direct(endpoint) as store:
        assert await store.get(ObjectAddress("bucket", key), 5) is None
        assert not heads


async def test_credentials_that_must_be_refreshed_are_left_to_boto3() -> None:
    def refresh() -> dict[str, str]:
        raise AssertionError("this blocks the event loop")

    def expiring(minutes: float) -> RefreshableCredentials:
        until = datetime.now(UTC) + timedelta(minutes=minutes)
        return RefreshableCredentials("ID", "secret", "token", until, refresh, "role")

    async with server(IMAGE) as (endpoint, heads):
        async with direct(endpoint, expiring(minutes=5)) as store:
            assert await store.get(OBJECT, 5) is None
            assert not heads
        async with direct(endpoint, expiring(minutes=50)) as store:
            assert await store.get(OBJECT, 5) == b"image"
    assert "X-Amz-Security-Token: token" in heads[0]


async def test_nothing_is_read_without_credentials_or_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(IMAGE) as (endpoint, heads):
        async with direct(endpoint, None) as store:
            assert await store.get(OBJECT, 5) is None
        monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
        async with direct(endpoint) as store:
            assert await store.get(OBJECT, 5) is None
        assert not heads
        monkeypatch.setenv("NO_PROXY", HOST)
        async with direct(endpoint) as store:
            assert await store.get(OBJECT, 5) == b"image"


async def test_the_servers_certificate_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(IMAGE, authority.server(HOST)) as (endpoint, heads):
        async with direct(endpoint, authorities=str(authority.certificate)) as store:
            assert await store.get(OBJECT, 5) == b"image"
        async with direct(endpoint) as stranger:
            assert await stranger.get(OBJECT, 5) is None
    assert len(heads) == 1


@asynccontextmanager
async def direct(
    endpoint: str, credentials: Credentials | None = CREDENTIALS, authorities: str | None = None
) -> AsyncIterator[DirectStore]:
    store = DirectStore(
        connect_store(FetchConfig(endpoint=endpoint, region="us-east-1", path_style=True)),
        credentials,
        authorities=authorities,
        connections=2,
        connect_timeout=10,
        read_timeout=10,
    )
    try:
        yield store
    finally:
        await store.close()
        await store.close()  # idempotent


@asynccontextmanager
async def server(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """A store that gives this answer to every request; yields its endpoint and the heads of the requests so far."""
    heads: list[str] = []
    closing: list[Callable[[], None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closing.append(writer.close)
        try:
            while True:
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(answer)
                await writer.drain()
                if b"Content-Length" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(talk, HOST, 0, ssl=tls)
    try:
        port = listening.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://{HOST}:{port}", heads
    finally:
        listening.close()
        for close in closing:
            close()
