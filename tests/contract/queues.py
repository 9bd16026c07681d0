"""The two queues that the contract is tested on, with access behind the ports of each."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from redis.asyncio import Redis

from stoop.client.transport import Transport
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import Skill
from stoop_schemas.state import State
from stoop_worker.jobs.broker import Broker, Delivery, Settlement
from stoop_worker.jobs.outcome import Completed, Crashed, Outcome
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from tests.support.memory_queue import MemoryBroker, MemoryQueue, MemoryTransport

__all__ = [
    "FAILURE",
    "InMemory",
    "OnRedis",
    "QueueUnderTest",
    "crash_under",
    "die_under",
    "ending",
    "new_job",
    "open_broker",
    "submit",
]

_NUMBERS = ("attempt", "seq", "queued_at", "crashes")
_NUMBER = re.compile(r"\d{1,15}")
FAILURE = Failure.of(FailureCode.INTERNAL, "it broke")


class QueueUnderTest(Protocol):
    """Makes the adapters of one queue, and changes it in ways that no port offers."""

    def broker(
        self,
        worker: str = "worker-1",
        *,
        lanes: tuple[str, ...] = names.DEFAULT_LANES,
        models: tuple[str | None, ...] = (None,),
        tenant_limit: int | None = None,
    ) -> Broker: ...

    def transport(
        self, *, bounds: Mapping[str, int] | None = None, tenant_bound: int | None = None, silence: float = 30.0
    ) -> Transport: ...

    async def put(self, lane: str, fields: Mapping[str, str]) -> str:
        """Add an entry as a raw producer does; return its id."""

    async def change(self, job_id: str, **fields: str) -> None:
        """Set fields of a job's hash."""

    async def read(self, job_id: str, field: str) -> str | None: ...

    async def result_ttl(self, job_id: str) -> float: ...

    async def dead(self) -> list[tuple[str, str]]:
        """Return the job id and failure code of each dead letter."""

    async def letters(self) -> list[dict[str, str]]:
        """Return the fields of each dead letter."""

    async def registry(self) -> dict[str, str]:
        """Return each worker's record."""

    async def depth(self, lane: str) -> int:
        """Return how many jobs a lane holds, those of its tenants and those in flight included."""

    async def forget(self, job_id: str) -> None:
        """Let the time run out for which an ended job is kept."""

    async def kill(self, worker: str) -> None:
        """Let a worker's lease run out."""

    async def pause(self, lane: str) -> None: ...

    async def resume(self, lane: str) -> None: ...

    async def clear(self) -> None: ...

    async def close(self) -> None: ...


class OnRedis:
    def __init__(self, url: str) -> None:
        self.url = url
        self._redis: Redis = Redis.from_url(url, protocol=2, decode_responses=True)
        self._made: list[Any] = []

    def broker(
        self,
        worker: str = "worker-1",
        *,
        lanes: tuple[str, ...] = names.DEFAULT_LANES,
        models: tuple[str | None, ...] = (None,),
        tenant_limit: int | None = None,
    ) -> RedisBroker:
        given = {"lanes": lanes, "models": models, "tenant_limit": tenant_limit}
        config = BrokerConfig(url=self.url, worker=worker, result_ttl=100.0, lane_result_ttls={"brief": 10.0}, **given)  # type: ignore[arg-type]
        broker = RedisBroker(config)
        self._made.append(broker)
        return broker

    def transport(
        self, *, bounds: Mapping[str, int] | None = None, tenant_bound: int | None = None, silence: float = 30.0
    ) -> RedisTransport:
        transport = RedisTransport(self.url, bounds=bounds, tenant_bound=tenant_bound, silence=silence)
        self._made.append(transport)
        return transport

    async def call(self, *command: Any) -> Any:
        return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def call_all(self, commands: Sequence[Sequence[Any]], *, errors: bool = False) -> list[Any]:
        """Run commands in one go; return their replies, with `errors` also those that are one."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute(raise_on_error=not errors))

    async def put(self, lane: str, fields: Mapping[str, str]) -> str:
        flat = [part for field in fields.items() for part in field]
        return str(await self.call("XADD", f"stoop:{{0}}:jobs:{lane}", "*", *flat))

    async def change(self, job_id: str, **fields: str) -> None:
        await self.call("HSET", names.job(job_id), *[part for field in fields.items() for part in field])

    async def read(self, job_id: str, field: str) -> str | None:
        value: str | None = await self.call("HGET", names.job(job_id), field)
        return value

    async def result_ttl(self, job_id: str) -> float:
        return float(await self.call("PTTL", names.result(job_id))) / 1000

    async def dead(self) -> list[tuple[str, str]]:
        return [(fields["id"], json.loads(fields["failure"])["code"]) for fields in await self.letters()]

    async def letters(self) -> list[dict[str, str]]:
        return [fields for _, fields in await self.call("XRANGE", names.dead(), "-", "+")]

    async def registry(self) -> dict[str, str]:
        return dict(await self.call("HGETALL", names.workers()))

    async def depth(self, lane: str) -> int:
        tenants = filter(None, await self.call("ZRANGE", names.tenants(lane), 0, -1))
        parts = [lane, *(names.tenant_lane(lane, tenant) for tenant in tenants)]
        return sum([int(await self.call("XLEN", names.lane(part))) for part in parts])

    async def forget(self, job_id: str) -> None:
        await self.call("DEL", names.job(job_id), names.result(job_id), names.log(job_id))

    async def kill(self, worker: str) -> None:
        await self.call("DEL", names.live(worker))

    async def pause(self, lane: str) -> None:
        await self.call("SADD", names.paused(), lane)

    async def resume(self, lane: str) -> None:
        await self.call("SREM", names.paused(), lane)

    async def clear(self) -> None:
        await self.call("FLUSHALL")

    async def close(self) -> None:
        for made in self._made:
            await made.close()
        await self._redis.aclose()


class InMemory:
    def __init__(self) -> None:
        self.queue = MemoryQueue()

    def broker(
        self,
        worker: str = "worker-1",
        *,
        lanes: tuple[str, ...] = names.DEFAULT_LANES,
        models: tuple[str | None, ...] = (None,),
        tenant_limit: int | None = None,
    ) -> MemoryBroker:
        given = {"lanes": lanes, "models": models, "tenant_limit": tenant_limit}
        return MemoryBroker(self.queue, worker, result_ttl=100.0, lane_result_ttls={"brief": 10.0}, **given)  # type: ignore[arg-type]

    def transport(
        self, *, bounds: Mapping[str, int] | None = None, tenant_bound: int | None = None, silence: float = 30.0
    ) -> MemoryTransport:
        return MemoryTransport(self.queue, bounds=bounds, tenant_bound=tenant_bound, silence=silence)

    async def put(self, lane: str, fields: Mapping[str, str]) -> str:
        return self.queue.put(lane, {name: value.encode() for name, value in fields.items()})

    async def change(self, job_id: str, **fields: str) -> None:
        for name, value in fields.items():
            if name in _NUMBERS and not _NUMBER.fullmatch(value):
                self.queue.jobs[job_id].invalid = name
                continue
            kind = {"cancel": bool, "attempt": int, "crashes": int, "state": State}.get(name, str)
            setattr(self.queue.jobs[job_id], name, kind(value))

    async def read(self, job_id: str, field: str) -> str | None:
        record = self.queue.jobs.get(job_id)
        value = getattr(record, field) if record else None
        return None if value is None else str(value)

    async def result_ttl(self, job_id: str) -> float:
        return (self.queue.results[job_id][1] - self.queue.now()) / 1000

    async def dead(self) -> list[tuple[str, str]]:
        return [(letter.job_id, letter.failure.code.value) for letter in self.queue.dead]

    async def letters(self) -> list[dict[str, str]]:
        return [
            {"id": one.job_id, "lane": one.lane, "attempt": str(one.attempt), "crashes": str(one.crashes)}
            | {name: value.decode() for name, value in one.fields.items() if name != "id"}
            for one in self.queue.dead
        ]

    async def registry(self) -> dict[str, str]:
        return {name: record.decode() for name, record in self.queue.registry.items()}

    async def depth(self, lane: str) -> int:
        return self.queue.depth(lane)

    async def forget(self, job_id: str) -> None:
        self.queue.forget(job_id)

    async def kill(self, worker: str) -> None:
        self.queue.live.discard(worker)

    async def pause(self, lane: str) -> None:
        self.queue.paused.add(lane)

    async def resume(self, lane: str) -> None:
        self.queue.paused.discard(lane)

    async def clear(self) -> None:
        self.queue.clear()

    async def close(self) -> None:
        pass


def new_job(**fields: Any) -> Job:
    """Make a valid job."""
    given = {
        "id": names.new_id(),
        "skill": Skill.QUERY,
        "question": "What is it?",
        "image": "s3://bucket/cat.jpg",
        "stream": True,
    }
    return Job(**{**given, **fields})


def ending(delivery: Delivery, outcome: Outcome | None = None, seq: int | None = None) -> Settlement:
    """Make the settlement of a delivery; by default completed, and right after its last event."""
    seq = delivery.next_seq if seq is None else seq
    return Settlement(delivery, outcome or Completed(), seq, b"last of " + delivery.job_id.encode(), b"result")


async def submit(transport: Transport, count: int, lane: str = "interactive") -> list[str]:
    """Submit valid jobs; return their ids."""
    return await transport.submit([new_job(lane=lane) for _ in range(count)])


async def open_broker(queue: QueueUnderTest, worker: str, *models: str | None) -> Broker:
    """Start one more worker; it serves the lanes without a model if no `models` are named."""
    broker = queue.broker(worker, models=models or (None,))
    await broker.open()
    return broker


async def die_under(queue: QueueUnderTest, count: int, heir: Broker, name: str = "doomed") -> list[Delivery]:
    """Let a worker claim jobs and die, and another take them over."""
    claimed = await (await open_broker(queue, name)).take(count)
    await queue.kill(name)
    assert await heir.reclaim() == len(claimed)
    return claimed


async def crash_under(broker: Broker, count: int) -> list[Delivery]:
    """Let a worker's engine crash under jobs that it has just claimed."""
    claimed = await broker.take(count)
    assert await broker.settle([ending(one, Crashed()) for one in claimed]) == [True] * len(claimed)
    return claimed
