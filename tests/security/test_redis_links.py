"""The queue behind TLS, behind a Sentinel and on a Cluster: a job goes in, is claimed, and its answer comes out."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stoop.errors import ConfigError as ProducerConfigError
from stoop.errors import QueueUnavailable as ProducerQueueUnavailable
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.codec import unpack_job
from stoop_worker.errors import ConfigError, QueueUnavailable
from stoop_worker.jobs.redis.client import RedisClient
from stoop_worker.jobs.redis.connect import make_connection
from tests.contract.queues import new_job
from tests.security.redis_process import free_port, running_cluster, running_redis, running_sentinel
from tests.support.authority import Authority

SOON = 20.0


async def goes_through(url: str) -> None:
    """Submit by the producer's side of this URL, read and publish by the worker's."""
    transport, client = RedisTransport(url, silence=SOON), RedisClient(url, timeout=SOON)
    job = new_job()
    try:
        async with asyncio.timeout(SOON), transport.subscribe(job.id) as published:
            assert await transport.submit([job]) == [job.id]
            assert b'"queued"' in (await anext(published) or b"")
            lane = names.lane("interactive")
            [[_, [[_, fields]]]] = await client.call("XREAD", "BLOCK", 1000, "COUNT", 1, "STREAMS", lane, "0")
            assert unpack_job(fields[b"j"]).id == job.id
            await client.call("SET", names.result(job.id), b"answer")
            await client.call("PUBLISH", names.events(job.id), b"event")
            assert await anext(published) == b"event"
        assert await transport.result(job.id) == b"answer"
        assert await transport.state(job.id) == "queued"
        await listens(client, job.id)
    finally:
        await transport.close()
        await client.close()


async def listens(client: RedisClient, job_id: str) -> None:
    """Have a connection of its own on the worker's side, as orders to all workers need."""
    connection = make_connection(client._redis)
    await connection.connect()
    try:
        await connection.send_command("SUBSCRIBE", names.CONTROL)
        assert (await connection.read_response())[0] == b"subscribe"
        await client.call("PUBLISH", names.CONTROL, b"order")
        assert (await connection.read_response())[2] == b"order"
    finally:
        await connection.disconnect()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    with running_redis(tmp_path) as port:
        yield port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def behind_tls(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """End TLS in front of a server that has none, as the server in the wheel has none; yields the TLS port."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def test_tls(server: int, authority: Authority) -> None:
    async with behind_tls(server, authority.server("localhost")) as port:
        await goes_through(f"rediss://localhost:{port}/0?ssl_ca_certs={authority.certificate}")


async def test_an_untrusted_certificate_is_refused(server: int, authority: Authority) -> None:
    async with behind_tls(server, authority.server("localhost")) as port:
        await _is_refused(f"rediss://localhost:{port}/0")


async def test_a_certificate_for_another_host_is_refused(server: int, authority: Authority) -> None:
    async with behind_tls(server, authority.server("redis.example")) as port:
        await _is_refused(f"rediss://localhost:{port}/0?ssl_ca_certs={authority.certificate}")


async def _is_refused(url: str) -> None:
    transport, client = RedisTransport(url), RedisClient(url, timeout=SOON)
    try:
        with pytest.raises(ProducerQueueUnavailable, match="certificate"):
            await transport.state("job")
        with pytest.raises(QueueUnavailable, match="certificate"):
            await client.call("PING")
    finally:
        await transport.close()
        await client.close()


async def test_a_sentinel(server: int, tmp_path: Path) -> None:
    with running_sentinel(tmp_path, "jobs", server) as port:
        await goes_through(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/jobs/0")


async def test_a_sentinel_without_the_master_is_reported_with_advice(server: int, tmp_path: Path) -> None:
    with running_sentinel(tmp_path, "jobs", server) as port:
        client = RedisClient(f"redis+sentinel://127.0.0.1:{port}/others", timeout=SOON)
        with pytest.raises(
            QueueUnavailable, match=rf"others of 127\.0\.0\.1:{port} cannot.*No master.*name of the master"
        ):
            await client.call("PING")
        await client.close()


async def test_a_cluster(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as port:
        await goes_through(f"redis+cluster://127.0.0.1:{port}")


async def test_a_cluster_that_is_not_there() -> None:
    url = f"redis+cluster://127.0.0.1:{free_port()}"
    transport, client = RedisTransport(url), RedisClient(url, timeout=SOON)
    with pytest.raises(ProducerQueueUnavailable):
        await transport.state("job")
    with pytest.raises(QueueUnavailable):
        await client.call("PING")
    await transport.close()
    await client.close()


@pytest.mark.parametrize("url", ["http://hidden", "redis+sentinel://hidden", "redis://:hidden@h:port"])
def test_a_malformed_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ProducerConfigError) as raised:
        RedisTransport(url)
    assert "hidden" not in str(raised.value)
    with pytest.raises(ConfigError) as at_work:
        RedisClient(url, timeout=SOON)
    assert "hidden" not in str(at_work.value)
