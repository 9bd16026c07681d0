"""Objects by one plain GET; whatever does not go well is the whole client's to ask for again."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.authority import Authority
from worker.errors import ImageNotFound, StorageUnavailable
from worker.jobs import plain_get
from worker.jobs.fetch import FetchConfig, Fetcher

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage"


@pytest.fixture(autouse=True)
def _worker_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


class Store:
    """Answers the requests of a fetcher by `answers`, one after the other, then by the last of them for ever."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.connections = 0
        self.closes = False

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                await writer.drain()
                if self.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @property
    def plain(self) -> list[bool]:
        """Which requests were plain ones: the whole client names each call of its own."""
        return ["amz-sdk-invocation-id" not in head for head in self.heads]

    @asynccontextmanager
    async def fetcher(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Fetcher]:
        server = await asyncio.start_server(self.talk, "127.0.0.1", 0, ssl=tls)
        endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = dataclasses.replace(FetchConfig(endpoint=endpoint, timeout=20), path_style=True)
        with Fetcher(config) as fetcher:
            yield fetcher
        server.close()


def refusal(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code></Error>"
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def test_what_goes_well_takes_one_request_and_one_connection() -> None:
    store = Store(OK)
    async with store.fetcher() as fetcher:
        for _ in range(5):
            assert await fetcher.fetch("s3://bucket/a b/ü.jpg") == b"image"
    assert store.plain == [True] * 5
    assert store.connections == 1
    head = store.heads[0]
    assert head.startswith("GET /bucket/a%20b/%C3%BC.jpg HTTP/1.1\r\n")
    assert "Credential=AKIAKEY/" in head
    assert "/eu-west-1/s3/aws4_request" in head
    assert "X-Amz-Security-Token: token\r\n" in head


async def test_an_empty_object_is_an_object() -> None:
    store = Store(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with store.fetcher() as fetcher:
        assert await fetcher.fetch("s3://bucket/key") == b""


async def test_a_refusal_is_the_clients_to_hear() -> None:
    store = Store(refusal("404 Not Found", "NoSuchKey"))
    async with store.fetcher() as fetcher:
        for _ in range(2):
            with pytest.raises(ImageNotFound):
                await fetcher.fetch("s3://bucket/key")
    assert store.plain == [True, False, True, False]


async def test_a_bucket_that_is_elsewhere_is_left_to_the_client() -> None:
    store = Store(refusal("400 Bad Request", "AuthorizationHeaderMalformed"), OK)
    async with store.fetcher() as fetcher:
        for _ in range(3):
            assert await fetcher.fetch("s3://far/key") == b"image"
        assert await fetcher.fetch("s3://near/key") == b"image"
    assert store.plain == [True, False, False, False, True]


async def test_a_connection_that_the_store_has_closed_is_no_fault() -> None:
    store = Store(OK)
    store.closes = True
    async with store.fetcher() as fetcher:
        for _ in range(3):
            assert await fetcher.fetch("s3://bucket/key") == b"image"


async def test_versions_are_the_clients() -> None:
    store = Store(OK)
    async with store.fetcher() as fetcher:
        assert await fetcher.fetch("s3://bucket/key?versionId=1") == b"image"
    assert store.plain == [False]


async def test_jobs_cannot_fill_the_memory_with_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_get, "_MOST_BUCKETS", 3)
    store = Store(OK)
    async with store.fetcher() as fetcher:
        for number in range(10):
            assert await fetcher.fetch(f"s3://bucket-{number}/key") == b"image"
            assert len(fetcher._plain._buckets) <= 3
    assert store.plain == [True] * 10


async def test_certificates_are_checked_as_the_client_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, store = Authority(tmp_path), Store(OK)
    tls = authority.server("127.0.0.1")
    async with store.fetcher(tls) as fetcher:
        with pytest.raises(StorageUnavailable):
            await fetcher.fetch("s3://bucket/key")
    assert store.heads == []
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
    async with store.fetcher(tls) as fetcher:
        assert await fetcher.fetch("s3://bucket/key") == b"image"
    assert store.plain == [True]
