"""Fetching from a real S3 server, and from stores that fail in every way they can."""

import asyncio
import base64
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stoop.demo.embedded import EmbeddedS3
from stoop_schemas.allowed import AllowedBuckets
from stoop_worker.errors import (
    ConfigError,
    ImageAddressInvalid,
    ImageForbidden,
    ImageNotFound,
    ImageTimeout,
    ImageTooLarge,
    StorageUnavailable,
)
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _worker_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker with credentials of its own, and nothing from the machine the tests run on."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def store(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> EmbeddedS3:
    """The real S3 server, which the AWS variables name."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
async def fetcher(store: EmbeddedS3) -> AsyncIterator[Fetcher]:
    async with Fetcher(FetchConfig(timeout=10)) as fetcher:
        yield fetcher


@pytest.mark.parametrize(
    "key", ["plain.jpg", "a folder/b c.jpg", "ünï/図.png", "100%25%2F.jpg", "a+b&c=d;e,f.jpg", "q?.jpg", "h#a.jpg"]
)
async def test_keys_are_used_literally(store: EmbeddedS3, fetcher: Fetcher, key: str) -> None:
    store.client().put_object(Bucket=store.bucket, Key=key, Body=key.encode())
    assert await fetcher.fetch(f"s3://{store.bucket}/{key}") == key.encode()


async def test_many_at_once_do_not_mix(store: EmbeddedS3) -> None:
    client = store.client()
    images = {f"many/{number}": bytes([number]) * (1000 * number) for number in range(40)}
    for key, image in images.items():
        client.put_object(Bucket=store.bucket, Key=key, Body=image)
    async with Fetcher(FetchConfig(concurrency=4)) as fetcher:
        fetched = await asyncio.gather(*(fetcher.fetch(f"s3://{store.bucket}/{key}") for key in images))
    assert fetched == list(images.values())


async def test_a_download_of_the_first_priority_does_not_wait_for_the_others() -> None:
    hung = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.set()
        await asyncio.Event().wait()

    async with _store(hang, concurrency=2) as fetcher:
        bulk = [asyncio.create_task(fetcher.fetch(f"s3://bucket/{number}", priority=1)) for number in range(4)]
        await hung.wait()
        hung.clear()
        urgent = asyncio.create_task(fetcher.fetch("s3://bucket/urgent", priority=0))
        async with asyncio.timeout(10):
            await hung.wait()
        for task in (*bulk, urgent):
            task.cancel()
        await asyncio.gather(*bulk, urgent, return_exceptions=True)


async def test_an_inline_image_does_not_wait_for_downloads() -> None:
    hung = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.set()
        await asyncio.Event().wait()

    async with _store(hang, concurrency=1) as fetcher:
        download = asyncio.create_task(fetcher.fetch("s3://bucket/slow"))
        await hung.wait()
        async with asyncio.timeout(10):
            assert await fetcher.fetch("data:image/png;base64,YWJj") == b"abc"
        download.cancel()
        await asyncio.gather(download, return_exceptions=True)


async def test_settings_name_the_store_without_variables(store: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    store.client().put_object(Bucket=store.bucket, Key="by-settings", Body=b"bytes")
    config = FetchConfig(endpoint=store.endpoint, region=store.region, path_style=True)
    async with Fetcher(config) as fetcher:
        assert await fetcher.fetch(f"s3://{store.bucket}/by-settings") == b"bytes"


async def test_a_missing_object(store: EmbeddedS3, fetcher: Fetcher) -> None:
    with pytest.raises(ImageNotFound, match=f"no object at s3://{store.bucket}/nowhere"):
        await fetcher.fetch(f"s3://{store.bucket}/nowhere")


async def test_a_missing_bucket(fetcher: Fetcher) -> None:
    with pytest.raises(ImageNotFound, match="no bucket 'nowhere' for s3://nowhere/key"):
        await fetcher.fetch("s3://nowhere/key")


async def test_the_byte_limit_is_exact(store: EmbeddedS3) -> None:
    store.client().put_object(Bucket=store.bucket, Key="thousand", Body=bytes(1000))
    address = f"s3://{store.bucket}/thousand"
    async with Fetcher(FetchConfig(max_bytes=1000)) as fetcher:
        assert len(await fetcher.fetch(address)) == 1000
    async with Fetcher(FetchConfig(max_bytes=999)) as fetcher:
        with pytest.raises(ImageTooLarge, match="at most 999"):
            await fetcher.fetch(address)


async def test_buckets_and_prefixes_are_allowed_by_name(store: EmbeddedS3) -> None:
    for key in ("mine/a", "mineral/a"):
        store.client().put_object(Bucket=store.bucket, Key=key, Body=b"bytes")
    async with Fetcher(FetchConfig(allowed=AllowedBuckets.read(["other", f"{store.bucket}/mine"]))) as fetcher:
        assert await fetcher.fetch(f"s3://{store.bucket}/mine/a") == b"bytes"
        with pytest.raises(ImageForbidden, match="not allowed"):
            await fetcher.fetch(f"s3://{store.bucket}/mineral/a")


async def test_a_tenant_reads_its_own_prefix_only(store: EmbeddedS3) -> None:
    store.client().put_object(Bucket=store.bucket, Key="acme/a", Body=b"bytes")
    allowed = AllowedBuckets.read([f"acme={store.bucket}/acme", f"rival={store.bucket}/rival"])
    async with Fetcher(FetchConfig(allowed=allowed)) as fetcher:
        assert await fetcher.fetch(f"s3://{store.bucket}/acme/a", "acme") == b"bytes"
        for tenant in ("rival", "guest", None):
            with pytest.raises(ImageForbidden, match="not allowed"):
                await fetcher.fetch(f"s3://{store.bucket}/acme/a", tenant)


async def test_wrong_credentials_are_the_workers_fault(store: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    async with Fetcher(FetchConfig()) as fetcher:
        with pytest.raises(StorageUnavailable, match="SignatureDoesNotMatch"):
            await fetcher.fetch(f"s3://{store.bucket}/any")


async def test_no_credentials_are_the_workers_fault(store: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with Fetcher(FetchConfig()) as fetcher:
        with pytest.raises(StorageUnavailable, match="set AWS_ACCESS_KEY_ID"):
            await fetcher.fetch(f"s3://{store.bucket}/any")


async def test_versions() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        async with Fetcher(FetchConfig(endpoint=f"http://{host}:{port}")) as fetcher:
            client = EmbeddedS3(f"http://{host}:{port}", "AKIAKEY", "hidden", "us-east-1", "versions").client()
            client.create_bucket(Bucket="versions")
            client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
            first = client.put_object(Bucket="versions", Key="key", Body=b"first")["VersionId"]
            client.put_object(Bucket="versions", Key="key", Body=b"second")
            assert await fetcher.fetch(f"s3://versions/key?versionId={first}") == b"first"
            assert await fetcher.fetch("s3://versions/key") == b"second"
            with pytest.raises(ImageNotFound):
                await fetcher.fetch(f"s3://versions/key?versionId={first[::-1]}")
    finally:
        server.stop()


async def test_inline_images() -> None:
    async with Fetcher(FetchConfig(max_bytes=5)) as fetcher:
        assert await fetcher.fetch("data:image/png;base64," + base64.b64encode(b"image").decode()) == b"image"
        with pytest.raises(ImageTooLarge):
            await fetcher.fetch("data:image/png;base64," + base64.b64encode(b"images").decode())
        with pytest.raises(ImageAddressInvalid):
            await fetcher.fetch("data:image/png;base64,*")


async def test_https_is_refused() -> None:
    async with Fetcher(FetchConfig()) as fetcher:
        with pytest.raises(ImageAddressInvalid, match="https addresses are not enabled"):
            await fetcher.fetch("https://example.org/image.jpg")


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        ("403 Forbidden", "AccessDenied", ImageForbidden),
        ("403 Forbidden", "InvalidObjectState", ImageForbidden),
        ("403 Forbidden", "InvalidAccessKeyId", StorageUnavailable),
        ("400 Bad Request", "ExpiredToken", StorageUnavailable),
        ("400 Bad Request", "InvalidArgument", ImageAddressInvalid),
        ("400 Bad Request", "RequestTimeout", ImageTimeout),
        ("404 Not Found", "NoSuchKey", ImageNotFound),
        ("404 Not Found", "NoSuchBucket", ImageNotFound),
        ("404 Not Found", "NoSuchVersion", ImageNotFound),
        ("405 Method Not Allowed", "MethodNotAllowed", ImageNotFound),
        ("500 Internal Server Error", "InternalError", StorageUnavailable),
        ("503 Slow Down", "SlowDown", StorageUnavailable),
        ("429 Too Many Requests", "TooManyRequests", StorageUnavailable),
    ],
)
async def test_each_refusal_of_the_store_has_its_own_error(status: str, code: str, error: type[Exception]) -> None:
    body = f"<Error><Code>{code}</Code><Message>AKIAKEY hidden</Message></Error>"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    async with _store(refuse) as fetcher:
        with pytest.raises(error) as raised:
            await fetcher.fetch("s3://bucket/key?X-Amz-Signature=signed")
    for secret in ("hidden", "AKIAKEY", "signed"):
        assert secret not in str(raised.value)
    assert ("s3:ListBucket" in str(raised.value)) is (code == "AccessDenied")


async def test_a_body_that_ends_early() -> None:
    async def truncate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(10))

    async with _store(truncate) as fetcher:
        with pytest.raises(StorageUnavailable, match="closed the connection in the middle"):
            await fetcher.fetch("s3://bucket/key")


async def test_an_answer_that_is_not_http() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR unknown command 'GET'\r\n")

    async with _store(babble) as fetcher:
        with pytest.raises(StorageUnavailable):
            await fetcher.fetch("s3://bucket/key")


async def test_the_announced_size_is_checked_before_the_body() -> None:
    sent = asyncio.Event()

    async def announce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        await reader.read()  # until the worker closes the connection
        sent.set()

    async with _store(announce) as fetcher:
        with pytest.raises(ImageTooLarge):
            await fetcher.fetch("s3://bucket/key")
        await asyncio.wait_for(sent.wait(), 10)


async def test_a_body_of_unknown_size_is_counted() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    async with _store(flood, max_bytes=1 << 20) as fetcher:
        with pytest.raises(ImageTooLarge):
            await fetcher.fetch("s3://bucket/key")


async def test_a_silent_store_times_out() -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with _store(stay_silent, read_timeout=0.1, timeout=10) as fetcher:
        with pytest.raises(ImageTimeout, match="took too long"):
            await fetcher.fetch("s3://bucket/key")


async def test_a_dripping_body_meets_the_total_limit_and_frees_its_thread() -> None:
    gone = asyncio.Event()
    drips = 0

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal drips
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        hung_up = asyncio.ensure_future(reader.read())
        while not hung_up.done():
            writer.write(b".")
            drips += 1
            await asyncio.wait([hung_up], timeout=0.01)
        gone.set()

    async with _store(drip, timeout=0.3, read_timeout=60) as fetcher:
        began = time.monotonic()
        with pytest.raises(ImageTimeout, match=r"did not arrive in 0\.3 s"):
            await fetcher.fetch("s3://bucket/key")
        assert time.monotonic() - began < 5
        assert drips > 3  # the event loop went on while the thread read
        await asyncio.wait_for(gone.wait(), 10)  # long before the read timeout


async def test_a_cancelled_fetch_hangs_up() -> None:
    reading, gone = asyncio.Event(), asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        hung_up = asyncio.ensure_future(reader.read())
        while not hung_up.done():
            writer.write(b".")
            reading.set()
            await asyncio.wait([hung_up], timeout=0.01)
        gone.set()

    async with _store(drip, timeout=60, read_timeout=60) as fetcher:
        fetch = asyncio.ensure_future(fetcher.fetch("s3://bucket/key"))
        await asyncio.wait_for(reading.wait(), 10)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        await asyncio.wait_for(gone.wait(), 10)


async def test_a_server_error_is_tried_once_more() -> None:
    calls = 0

    async def recover(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        first = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
        writer.write(first if calls == 1 else b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage")

    async with _store(recover) as fetcher:
        assert await fetcher.fetch("s3://bucket/key") == b"image"
    assert calls == 2


async def test_a_store_that_does_not_listen_is_unavailable(unused_tcp_port: int) -> None:
    config = FetchConfig(endpoint=f"http://127.0.0.1:{unused_tcp_port}")
    async with Fetcher(config) as fetcher:
        with pytest.raises(StorageUnavailable, match="does not answer"):
            await fetcher.fetch("s3://bucket/key")


def test_an_endpoint_that_is_not_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="check STOOP_S3_ENDPOINT") as raised:
        Fetcher(FetchConfig(endpoint="http://user:secret@minio.internal :9000"))
    assert "secret" not in str(raised.value) and "minio" not in str(raised.value)


async def test_closing_twice_is_harmless_and_ends_the_threads(store: EmbeddedS3) -> None:
    async with Fetcher(FetchConfig()) as fetcher:
        with pytest.raises(ImageNotFound):
            await fetcher.fetch(f"s3://{store.bucket}/boto3 reads this on a thread")
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("fetch")]
        assert threads
    await fetcher.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@asynccontextmanager
async def _store(answer: Answer, **changes: float) -> AsyncIterator[Fetcher]:
    """A fetcher whose store reads each request's head and then calls `answer`."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = dataclasses.replace(FetchConfig(endpoint=f"http://127.0.0.1:{port}", timeout=10), **changes)  # type: ignore[arg-type]
    try:
        async with Fetcher(config) as fetcher:
            yield fetcher
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
