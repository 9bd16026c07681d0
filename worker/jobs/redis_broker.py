"""The queue on Redis Streams: each method is one script call a partition, so all of it happens or nothing.

A delivery is owned by whom its job's hash names: `append` and `settle` write only for the owner. Works on Redis 6.2,
Redis 7 and Valkey. The scripts lie in `scripts/`, and say what each of them reads and writes.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import structlog
from redis.exceptions import ResponseError

from schemas import names
from schemas.state import State
from worker.errors import ConfigError, QueueUnavailable
from worker.jobs import outcome as outcomes
from worker.jobs.backoff import Backoff
from worker.jobs.broker import Delivery, EventGroup, Settlement
from worker.jobs.redis_client import RedisClient, Script
from worker.jobs.redis_watch import Watch

__all__ = ["BrokerConfig", "RedisBroker"]

log = structlog.get_logger(__name__)

_OPEN_SECONDS = 30.0
_CALL_SECONDS = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LOG_LENGTH = 4096
_VERDICTS: dict[bytes, outcomes.Cancelled | outcomes.Expired | None] = {
    b"cancelled": outcomes.Cancelled(),
    b"expired": outcomes.Expired(),
    b"": None,
}

_Written = TypeVar("_Written", EventGroup, Settlement)
_Place = tuple[int, str, str, int]
"""Partition, lane, entry and attempt: what tells one delivery from every other."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where the queue is and which part of it one worker instance serves.

    `lanes` are claimed from first to last, the last one having a minimum share. `worker` must be new for each start
    of a process. Durations are in seconds: `lease` without `extend` and the worker counts as dead; results are
    kept for `result_ttl`, the events of an ended job for `log_ttl`.
    """

    url: str = field(repr=False)
    worker: str
    lanes: tuple[str, ...] = names.DEFAULT_LANES
    partitions: tuple[int, ...] = (0,)
    lease: float = 15.0
    result_ttl: float = 86_400.0
    log_ttl: float = 3_600.0

    def __post_init__(self) -> None:
        for name in (self.worker, *self.lanes):
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name a lane or worker: use A-Z a-z 0-9 . _ : - (at most 128)")
        if not self.lanes or len(set(self.lanes)) < len(self.lanes):
            raise ConfigError("lanes: name at least one, and each once")
        if not self.partitions or len(set(self.partitions)) < len(self.partitions):
            raise ConfigError("partitions: name at least one, and each once")
        if min(self.lease, self.result_ttl, self.log_ttl) < 0.001:
            raise ConfigError("lease, result_ttl and log_ttl must be at least a millisecond")


class RedisBroker:
    """The `Broker` on a Redis server."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._redis = RedisClient(config.url, timeout=_CALL_SECONDS)
        self._watch = Watch(config.url, {p: _streams(config.lanes, p) for p in config.partitions})
        self._take = Script("claim", "take")
        self._append = Script("fence", "append")
        self._settle = Script("fence", "settle")
        self._leave = Script("leave")
        self._closed = False
        self._takes = 0
        self._held: set[_Place] = set()
        # partitions whose last take may have claimed what never arrived here
        self._unanswered: set[int] = set()
        # deliveries whose settling may have gone through though no reply arrived
        self._doubtful: set[_Place] = set()

    async def open(self) -> None:
        """Wait for Redis at most 30 s, check it, make the groups and take the lease."""
        backoff, deadline = Backoff(), asyncio.get_running_loop().time() + _OPEN_SECONDS
        while True:
            try:
                await self._check_eviction()
                await self._make_groups()
                return await self.extend()
            except QueueUnavailable as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                log.warning("waiting for Redis", error=str(error))
                await asyncio.sleep(backoff.next())

    async def take(self, permits: int) -> list[Delivery]:
        """Claim at most `permits` jobs; partitions take turns to be asked first."""
        share = self._bulk_share(permits)
        turn = self._takes % len(self._config.partitions)
        claimed: list[Delivery] = []
        for partition in (*self._config.partitions[turn:], *self._config.partitions[:turn]):
            if len(claimed) >= permits or self._closed:
                break
            try:
                claimed += await self._take_from(partition, permits - len(claimed), share)
            except QueueUnavailable as error:
                log.warning("nothing can be claimed", partition=partition, error=str(error))
        return claimed

    async def wait(self, timeout: float) -> None:
        """Wait on connections of its own, which block; nothing is claimed by it."""
        await self._watch.wait(timeout)

    async def extend(self) -> None:
        """Set the time to live of this worker's key in each partition back to the whole lease."""
        for partition in self._config.partitions:
            live = names.live(self._config.worker, partition)
            await self._redis.call("SET", live, "1", "PX", _ms(self._config.lease))

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Write the events to the jobs' logs, then to their channels."""
        return [code == 1 for code in await self._by_partition(groups, self._append_to)]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store results, tell last events and acknowledge."""
        places = [_place(settlement.delivery) for settlement in settlements]
        doubtful = self._doubtful.intersection(places)
        self._doubtful.update(places)
        codes = await self._by_partition(settlements, self._settle_in)
        self._doubtful.difference_update(places)
        self._held.difference_update(places)
        # 2: settled before, by this worker; that is news only to a caller who never had the answer
        return [code == 1 or (code == 2 and place in doubtful) for code, place in zip(codes, places, strict=True)]

    async def close(self) -> None:
        """Give the lease back; what is still held then belongs to whoever takes it over."""
        if self._closed:
            return
        self._closed = True
        try:
            for partition in self._config.partitions:
                live = names.live(self._config.worker, partition)
                keys = [live, *_streams(self._config.lanes, partition)]
                await self._redis.run(self._leave, keys, [names.GROUP, self._config.worker])
        except (QueueUnavailable, ConfigError) as error:
            log.warning("the lease is left to run out", error=str(error))
        finally:
            await self._watch.close()
            await self._redis.close()

    async def _check_eviction(self) -> None:
        facts = (await self._redis.call("INFO", "memory")) or {}
        policy = str(facts.get("maxmemory_policy", "unknown"))
        if policy.startswith("allkeys"):
            raise ConfigError(
                f"Redis at {self._redis.address} may delete jobs when its memory is full (maxmemory-policy {policy}): "
                "set maxmemory-policy noeviction"
            )
        if policy.startswith("volatile"):
            # jobs have no time to live, so they are safe; answers and leases have one
            log.warning("Redis may delete results when its memory is full: set noeviction", policy=policy)

    async def _make_groups(self) -> None:
        for partition in self._config.partitions:
            for stream in _streams(self._config.lanes, partition):
                try:
                    # from 0: what was submitted before the first worker came counts too
                    await self._redis.call("XGROUP", "CREATE", stream, names.GROUP, "0", "MKSTREAM")
                except ResponseError as error:
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    def _bulk_share(self, permits: int) -> int:
        self._takes += 1
        return permits // 4 if permits >= 4 else int(self._takes % 4 == 0)

    async def _take_from(self, partition: int, permits: int, share: int) -> list[Delivery]:
        lost = partition in self._unanswered
        self._unanswered.add(partition)
        now, due, ends, rows = await self._run_take(partition, permits, share, lost)
        if not (lost and len(rows) == permits):
            self._unanswered.discard(partition)
        self._watch.saw(partition, ends, (due - now) / 1000 if due else None)
        deliveries = [_delivery(row, partition, now) for row in rows]
        # a group that was made anew hands out again what this worker is at
        unheld = [delivery for delivery in deliveries if _place(delivery) not in self._held]
        self._held.update(map(_place, unheld))
        return unheld

    async def _run_take(self, partition: int, permits: int, share: int, lost: bool) -> Any:
        config = self._config
        held = [f"{place[1]} {place[2]}" for place in self._held if place[0] == partition] if lost else []
        keys = [*_streams(config.lanes, partition), names.delayed(partition)]
        head = [names.stem(partition), partition, names.GROUP, config.worker]
        return await self._redis.run(self._take, keys, [*head, permits, share, int(lost), *held])

    async def _by_partition(
        self, written: Sequence[_Written], write: Callable[[int, list[_Written]], Coroutine[Any, Any, list[int]]]
    ) -> list[int]:
        """Write the deliveries of each partition in one call; return the codes in the order they were given in."""
        codes = [0] * len(written)
        for partition in sorted({one.delivery.partition for one in written}):
            places = [i for i, one in enumerate(written) if one.delivery.partition == partition]
            replies = await write(partition, [written[i] for i in places])
            for i, code in zip(places, replies, strict=True):
                codes[i] = code
        return codes

    async def _append_to(self, partition: int, groups: list[EventGroup]) -> list[int]:
        stem, keys = names.stem(partition), []
        # while the job runs its log is kept as long as a result
        args: list[Any] = [self._config.worker, _ms(self._config.result_ttl), _LOG_LENGTH]
        for group in groups:
            job = group.delivery
            keys += [f"{stem}job:{job.job_id}", f"{stem}log:{job.job_id}"]
            args += [job.attempt, job.entry_id, job.lane, f"{stem}events:{job.job_id}", group.first_seq]
            args += [len(group.packed), *group.packed]
        return list(await self._redis.run(self._append, keys, args))

    async def _settle_in(self, partition: int, settlements: list[Settlement]) -> list[int]:
        config = self._config
        keys = [names.dead(partition), names.delayed(partition)]
        args: list[Any] = [config.worker, _ms(config.log_ttl), _LOG_LENGTH, names.GROUP, _ms(config.result_ttl)]
        for settlement in settlements:
            job = settlement.delivery
            stem = names.stem(partition)
            keys += [names.lane(job.lane, partition)]
            keys += [f"{stem}{kind}:{job.job_id}" for kind in ("job", "log", "result")]
            way, state, extra = _way(settlement.outcome)
            args += [job.job_id, job.attempt, job.entry_id, f"{stem}events:{job.job_id}", way, state]
            args += [settlement.seq, settlement.event, settlement.result, extra]
        codes = list(await self._redis.run(self._settle, keys, args))
        for settlement in settlements:
            if isinstance(settlement.outcome, outcomes.Retry):
                self._watch.expect(partition, settlement.outcome.delay)
        return codes


def _way(outcome: outcomes.Outcome) -> tuple[str, State, bytes | int]:
    """Return how the script ends a delivery, the job's state then, and what else that way needs."""
    match outcome:
        case outcomes.Completed():
            return "end", State.COMPLETED, b""
        case outcomes.Failed():
            return "end", State.FAILED, b""
        case outcomes.Cancelled():
            return "end", State.CANCELLED, b""
        case outcomes.Expired():
            return "end", State.EXPIRED, b""
        case outcomes.Dead(failure):
            return "dead", State.FAILED, msgspec.json.encode(failure)
        case outcomes.Retry(delay=delay):
            return "retry", State.DELAYED, _ms(delay)
        case outcomes.Released():
            return "release", State.QUEUED, b""


def _delivery(row: list[Any], partition: int, now: int) -> Delivery:
    lane, entry, job_id, packed, attempt, next_seq, queued_at, verdict = row
    return Delivery(
        job_id=job_id.decode(),
        packed=packed,
        lane=lane.decode(),
        entry_id=entry.decode(),
        partition=partition,
        attempt=attempt,
        next_seq=next_seq,
        queued_at=queued_at,
        claimed_at=now,
        verdict=_VERDICTS[verdict],
    )


def _place(delivery: Delivery) -> _Place:
    return delivery.partition, delivery.lane, delivery.entry_id, delivery.attempt


def _streams(lanes: Sequence[str], partition: int) -> list[str]:
    return [names.lane(lane, partition) for lane in lanes]


def _ms(seconds: float) -> int:
    return max(0, round(1000 * seconds))
