"""A Redis Cluster that moves the queue's slot to a new node, key by key, while clients use it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from stoop.errors import QueueUnavailable
from stoop.redis.calls import RedisCalls
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from tests.contract.queues import new_job
from tests.security.redis_process import free_port, running_cluster, running_redis

SOON = 20.0
LATE = 30.0


class Node:
    """One master of a Cluster."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._redis = redis.Redis(port=port, protocol=2, decode_responses=True)
        self.id = self.call("CLUSTER MYID")

    def call(self, *command: Any) -> Any:
        return self._redis.execute_command(*command)

    def knows(self, count: int) -> bool:
        facts = self.call("CLUSTER INFO")
        return (str(facts["cluster_known_nodes"]), facts["cluster_state"]) == (str(count), "ok")

    def close(self) -> None:
        self._redis.close()


class Move:
    """Moves the slot of partition 0 from one node to another."""

    def __init__(self, source: Node, target: Node) -> None:
        self.source, self.target = source, target
        self._slot = source.call("CLUSTER KEYSLOT", names.bell())

    def begin(self) -> None:
        self.target.call("CLUSTER SETSLOT", self._slot, "IMPORTING", self.source.id)
        self.source.call("CLUSTER SETSLOT", self._slot, "MIGRATING", self.target.id)

    def step(self, most: int) -> bool:
        """Move some keys; False when none is left."""
        keys = self.source.call("CLUSTER GETKEYSINSLOT", self._slot, most)
        if keys:
            self.source.call("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys)
        return bool(keys)

    def end(self) -> None:
        while self.step(100):
            pass
        for node in (self.target, self.source):
            node.call("CLUSTER SETSLOT", self._slot, "NODE", self.target.id)


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    """A Cluster to whose second node the slot is to move; no slot is there yet, so no client has heard of it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with running_cluster(tmp_path / "a") as port, _empty_node(tmp_path / "b") as other:
        nodes = [Node(port), Node(other)]
        nodes[1].call("CLUSTER MEET", "127.0.0.1", port)
        while not all(node.knows(2) for node in nodes):
            pass
        yield Move(*nodes)
        for node in nodes:
            node.close()


@pytest.fixture
async def transport(move: Move) -> AsyncIterator[RedisTransport]:
    transport = RedisTransport(f"redis+cluster://127.0.0.1:{move.source.port}")
    yield transport
    await transport.close()


@contextlib.contextmanager
def _empty_node(folder: Path) -> Iterator[int]:
    port = free_port()
    with running_redis(folder, "--cluster-enabled", "yes", "--port", str(port)):
        yield port


async def test_reading_continues_while_the_keys_move(move: Move, transport: RedisTransport) -> None:
    ids = await transport.submit([new_job() for _ in range(64)])
    # many connections, any of which redis-py may take for the next command
    await asyncio.gather(*(transport.state(job_id) for job_id in ids))
    move.begin()
    async with asyncio.timeout(SOON):
        while await asyncio.to_thread(move.step, 10):
            assert await asyncio.gather(*(transport.state(job_id) for job_id in ids)) == ["queued"] * 64
            assert len(await transport.log(ids[0])) == 1
            assert await transport.result(ids[0]) is None
    move.end()
    assert await transport.state(ids[0]) == "queued"


async def test_many_keys_are_read_at_once_while_they_move(move: Move, transport: RedisTransport) -> None:
    ids = await transport.submit([new_job() for _ in range(64)])
    calls = RedisCalls(f"redis+cluster://127.0.0.1:{move.source.port}")
    reads = [("HGET", names.job(job_id), "state") for job_id in ids]
    move.begin()
    async with asyncio.timeout(SOON):
        while await asyncio.to_thread(move.step, 10):
            assert await calls.read_each(reads) == [b"queued"] * 64
        move.end()
        assert await calls.read_each(reads) == [b"queued"] * 64
    await calls.close()


async def test_writes_wait_for_moving_keys_and_happen_once(move: Move, transport: RedisTransport) -> None:
    [early, *_] = await transport.submit([new_job(tenant=f"t{i}") for i in range(50)])
    move.begin()
    move.step(20)
    jobs = [new_job(tenant="t1", idempotency_key="once"), new_job(), new_job(tenant="new")]
    writing = asyncio.gather(transport.submit(jobs), transport.cancel(early))
    while await asyncio.to_thread(move.step, 5):
        await asyncio.sleep(0)
    move.end()
    async with asyncio.timeout(SOON):
        assert await writing == [[job.id for job in jobs], "queued"]
        assert await transport.submit(jobs) == [job.id for job in jobs]
    assert move.target.call("XLEN", names.lane("interactive")) == 1
    assert move.target.call("XLEN", names.lane("interactive/t1")) == 2


async def test_a_move_that_takes_too_long_is_an_outage(
    move: Move, transport: RedisTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoop.redis.calls._MOVING_SECONDS", 0.5)
    await transport.submit([new_job(tenant="t1"), new_job()])
    move.begin()
    move.step(2)
    async with asyncio.timeout(LATE):
        submitted, cancelled = await asyncio.gather(
            transport.submit([new_job(tenant="t1")]), transport.cancel("any"), return_exceptions=True
        )
    for error in (submitted, cancelled):
        assert isinstance(error, QueueUnavailable)
        assert "the cluster is moving these keys" in str(error)
