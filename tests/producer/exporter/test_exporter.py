"""The exporter on a real Redis: its reads, how often they happen, and its answers over HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop.exporter.options import ExporterOptions
from stoop.exporter.reader import QueueReader, Reading
from stoop.exporter.server import exporting
from stoop.operator.redis_operator import RedisOperator
from stoop_schemas import names
from stoop_worker.jobs.outcome import Completed
from tests.contract.queues import OnRedis, ending, new_job

LANES = names.DEFAULT_LANES


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def queue(redis_url: str) -> AsyncIterator[OnRedis]:
    queue = OnRedis(redis_url)
    yield queue
    await queue.close()


@pytest.fixture
async def operator(redis_url: str) -> AsyncIterator[RedisOperator]:
    operator = RedisOperator(redis_url)
    yield operator
    await operator.close()


def get(address: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=20.0) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def waiting(reading: Reading | None) -> dict[str, int]:
    assert reading is not None
    return {lane.lane: lane.waiting for lane in reading.partitions[0].status.lanes}


async def test_it_sees_lanes_workers_tenants_and_memory(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker()
    await broker.open()
    await broker.extend(b'{"lanes": ["interactive", "nightly"], "permits": 32}')
    await queue.transport().submit([new_job(lane="nightly", tenant="acme"), new_job(lane="unserved")])
    reading = await QueueReader(operator, [0], LANES, tenants=True).read()
    assert waiting(reading) == {"interactive": 0, "bulk": 0, "nightly": 1, "unserved": 1}
    assert reading is not None and reading.memory is not None and reading.memory.used_bytes > 0
    [partition] = reading.partitions
    assert (partition.status.workers, partition.permits) == (1, 32)
    assert [(one.lane, one.tenant, one.jobs) for one in partition.tenants] == [("nightly", "acme", 1)]


async def test_a_lane_whose_workers_have_gone_is_still_shown(queue: OnRedis, operator: RedisOperator) -> None:
    clock = Clock()
    reader = QueueReader(operator, [0], LANES, clock=clock)
    broker = queue.broker("gone")
    await broker.open()
    await broker.extend(b'{"lanes": ["nightly"]}')
    assert "nightly" in waiting(await reader.read())
    await queue.kill("gone")
    clock.now += 1
    assert waiting(await reader.read()) == {"interactive": 0, "bulk": 0, "nightly": 0}


async def test_lanes_that_anybody_may_name_are_shown_up_to_a_bound(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.transport().submit([new_job(lane=f"made-up-{number}") for number in range(9)])
    shown = waiting(await QueueReader(operator, [0], LANES, most_lanes=4).read())
    assert len(shown) == 4 and {"interactive", "bulk"} < set(shown)


async def test_a_long_search_for_lanes_delays_no_figures(queue: OnRedis, redis_url: str) -> None:
    found = asyncio.Event()

    class WithManyKeys(RedisOperator):
        async def lanes(self, partition: int = 0) -> list[str]:
            await found.wait()
            return await super().lanes(partition)

    operator, clock = WithManyKeys(redis_url), Clock()
    reader = QueueReader(operator, [0], LANES, clock=clock, search_seconds=0)
    await queue.transport().submit([new_job(lane="unserved")])
    assert waiting(await reader.read()) == {"interactive": 0, "bulk": 0}
    found.set()
    async with asyncio.timeout(60):
        while waiting(await reader.read()).get("unserved") != 1:
            clock.now += 1
    await operator.close()


async def test_redis_is_read_at_most_once_a_second(queue: OnRedis, operator: RedisOperator) -> None:
    async def calls(*commands: str) -> int:
        stats: dict[str, Any] = await queue.call("INFO", "commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in commands)

    clock = Clock()
    reader = QueueReader(operator, [0], LANES, clock=clock)
    first = await reader.read()
    scripts, scans = await calls("eval", "evalsha"), await calls("scan")
    clock.now += 0.9
    assert await reader.read() is first
    assert await calls("eval", "evalsha") == scripts
    await queue.transport().submit([new_job()])
    clock.now += 0.1
    assert waiting(await reader.read())["interactive"] == 1
    assert await calls("scan") == scans, "all keys are looked at once in ten minutes"


async def test_jobs_that_ended_are_counted_over_http(queue: OnRedis, redis_url: str) -> None:
    broker = queue.broker()
    await broker.open()
    await queue.transport().submit([new_job(), new_job()])
    assert all(await broker.settle([ending(delivery, Completed()) for delivery in await broker.take(1)]))
    with exporting(ProducerConfig(redis_url=redis_url), ExporterOptions(port=0)) as address:
        status, body = get(f"{address}/metrics")
        assert status == 200
        assert 'stoop_jobs_ended_total{partition="0",state="completed"} 1.0' in body
        assert 'stoop_queue_waiting{lane="interactive",partition="0"} 1.0' in body
        assert get(f"{address}/healthz") == (200, "ok\n")
        assert get(f"{address}/metric")[0] == 404


def test_without_redis_it_stays_up_and_reports_the_outage() -> None:
    with exporting(ProducerConfig(redis_url="redis://127.0.0.1:1/0"), ExporterOptions(port=0)) as address:
        status, body = get(f"{address}/metrics")
        assert status == 200
        assert "stoop_redis_up 0.0" in body
        assert "stoop_queue_waiting{" not in body
        assert get(f"{address}/healthz") == (200, "ok\n")


def test_a_port_that_is_taken_is_named() -> None:
    with exporting(ProducerConfig(redis_url="redis://127.0.0.1:1/0"), ExporterOptions(port=0)) as address:
        port = int(address.rpartition(":")[2])
        with (
            pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*--port"),
            exporting(ProducerConfig(), ExporterOptions(port=port)),
        ):
            pytest.fail("it was served")


def test_odd_partitions_are_refused() -> None:
    assert ExporterOptions(partitions="0, 2,2").partition_numbers == (0, 2)
    with pytest.raises(ConfigError, match="STOOP_PARTITIONS"):
        assert ExporterOptions(partitions="0,x").partition_numbers


def test_the_command_serves_until_a_signal(redis_url: str) -> None:
    command = [sys.executable, "-m", "stoop", "exporter", "--port", "0"]
    environment = {**os.environ, "STOOP_REDIS_URL": redis_url}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().split()[-1]
            assert "stoop_redis_up 1.0" in get(f"{address}/metrics")[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
