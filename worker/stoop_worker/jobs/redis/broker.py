"""The queue on Redis Streams: each method is one script call a partition, so all of it happens or nothing.

The hash of a job names the owner of its delivery: `append` and `settle` write only for the owner. Works on Redis 6.2,
Redis 7 and Valkey. Each script in `scripts/` begins with a list of the keys and arguments that it takes.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog

from stoop_schemas import names
from stoop_worker.errors import ConfigError, QueueFault, QueueUnavailable
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.broker import Delivery, DeliveryKey, EventGroup, Held, Settlement
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.redis.claims import ClaimPlan, Claims, Part
from stoop_worker.jobs.redis.client import BROKER_SCRIPTS, RedisClient, Script
from stoop_worker.jobs.redis.config import BrokerConfig
from stoop_worker.jobs.redis.values import Taken, command_of, in_ms, lane_ttls, to_delivery
from stoop_worker.jobs.redis.watch import Watch

__all__ = ["BrokerConfig", "RedisBroker"]

log = structlog.get_logger(__name__)

_OPEN_SECONDS = 30.0
_CALL_SECONDS = 10.0
_LOG_LENGTH = 4096
# entries that one call of a script takes from dead workers, so that none holds Redis up
_RECLAIMED_AT_ONCE = 100
_NO_LIMIT = 1 << 30

_Written = TypeVar("_Written", EventGroup, Settlement)


class _LaneLimits(NamedTuple):
    """Limits on the lanes of one claim: the least for the last one, and the most for all after the first."""

    last_lane_least: int
    later_lanes_most: int


class RedisBroker:
    """The `Broker` on a Redis server."""

    def __init__(self, config: BrokerConfig, outage: RedisOutage | None = None) -> None:
        self._config = config
        self._outage = outage or RedisOutage()
        self._redis = RedisClient(config.url, timeout=_CALL_SECONDS)
        watched = {part: [*config.streams(part), names.bell(part.partition)] for part in config.parts}
        self._watch = Watch(config.url, watched, self._outage)
        self._scripts = {name: Script(*files) for name, files in BROKER_SCRIPTS.items()}
        self._closed, self._takes = False, 0
        self._claims = Claims(config.small_batch)
        self._settled = asyncio.Event()
        # Redis's clock less this process's monotonic one, in ms
        self._clock = 0
        # parts whose last take may have claimed entries that never arrived here
        self._unanswered: set[Part] = set()
        # how Redis makes room when its memory is full, as last read
        self._policy = ""
        self._spoilt: dict[Part, frozenset[str]] = {}
        # deliveries whose settling may have gone through though no reply arrived
        self._doubtful: set[DeliveryKey] = set()

    async def open(self) -> None:
        """Wait for Redis at most 30 s, check it, make the groups and take the lease."""
        backoff, deadline = Backoff(), asyncio.get_running_loop().time() + _OPEN_SECONDS
        while True:
            try:
                with self._outage.noting("opening"):
                    await self._make_groups()
                    await self.extend()
                return
            except QueueUnavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(backoff.next())

    async def take(self, permits: int, *, reserved: int = 0) -> list[Delivery]:
        """Claim at most `permits` jobs; each call begins with another partition or model."""
        share, parts = self._bulk_share(permits), self._config.parts
        first = self._takes % len(parts)
        self._settled.clear()
        claimed: list[Delivery] = []
        for part in (*parts[first:], *parts[:first]):
            plan = self._claims.plan(part, permits - len(claimed))
            if plan is None or self._closed:
                continue
            later_lanes_most = permits - reserved - sum(one.priority > 0 for one in claimed)
            try:
                with self._outage.noting(f"claiming from {part}"):
                    claimed += await self._take_from(part, plan, _LaneLimits(share, max(0, later_lanes_most)))
                self._outage.succeeded("watching the lanes")
            except QueueUnavailable as error:
                # a cancelled job may have been claimed in the lanes of any model
                self._unanswered.update(other for other in parts if other.partition == part.partition)
                log.debug("nothing can be claimed", partition=part.partition, model=part.model, error=str(error))
        return claimed

    async def wait(self, timeout: float) -> None:
        """Wait with blocking reads on separate connections; this claims nothing."""
        if not self._claims.blocked:
            await self._watch.wait(timeout)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._settled.wait()

    async def extend(self, record: bytes = b"") -> Held:
        """Set the time to live of this worker's key in each partition back to the whole lease.

        Raises `ConfigError` if Redis may delete jobs by now: its settings can be changed while it runs.
        """
        await self._check_eviction()
        lost: list[Delivery] = []
        cancelled: list[Delivery] = []
        for partition in self._config.partitions:
            held = [one for one in self._claims.held.values() if one.partition == partition]
            with self._outage.noting(f"renewing the lease in partition {partition}"):
                codes = await self._extend_in(partition, held, record)
            for delivery, code in zip(held, codes, strict=True):
                if code != 1 and delivery.key in self._claims.held:
                    (cancelled if code else lost).append(delivery)
        return Held(tuple(lost), tuple(cancelled))

    async def reclaim(self) -> int:
        """Take over the entries of dead workers, part by part and a hundred at a time."""
        handled = 0
        for part in self._config.parts:
            keys, last = self._config.streams(part), _RECLAIMED_AT_ONCE
            while last >= _RECLAIMED_AT_ONCE and not self._closed:
                args = [*self._prelude(part.partition), part.partition, _RECLAIMED_AT_ONCE]
                last = int(await self._redis.run(self._scripts["reclaim"], keys, args))
                handled += last
        return handled

    def now(self) -> int:
        """Return Redis's time as last read, plus the time since then by this machine's monotonic clock."""
        return self._clock + _monotonic()

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Write the events to the jobs' logs, then to their channels."""
        with self._outage.noting("writing events"):
            return [code == 1 for code in await self._by_partition(groups, self._append_to)]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store results, publish last events and acknowledge."""
        keys = [settlement.delivery.key for settlement in settlements]
        doubtful = self._doubtful.intersection(keys)
        self._doubtful.update(keys)
        with self._outage.noting("settling jobs"):
            codes = await self._by_partition(settlements, self._settle_in)
        self._doubtful.difference_update(keys)
        self._claims.drop(keys)
        self._settled.set()
        # 2: settled before, by this worker; that is news only to a caller who never had the answer
        return [code == 1 or (code == 2 and key in doubtful) for code, key in zip(codes, keys, strict=True)]

    async def close(self) -> None:
        """Give the lease back; jobs still held then belong to whichever worker takes them over."""
        if self._closed:
            return
        self._closed = True
        self._settled.set()
        try:
            for part in self._config.parts:
                keys = [names.live(self._config.worker, part.partition), names.workers(part.partition)]
                keys += [names.quarantine_workers(part.partition, part.model), *self._config.streams(part)]
                await self._redis.run(self._scripts["leave"], keys, self._prelude(part.partition))
        except (QueueUnavailable, QueueFault, ConfigError) as error:
            log.warning("the lease is left to run out", error=str(error))
        finally:
            await self._watch.close()
            await self._redis.close()

    def _prelude(self, partition: int) -> list[Any]:
        """Return the first arguments of every script."""
        return [names.stem(partition), names.GROUP, self._config.worker]

    async def _check_eviction(self) -> None:
        facts = (await self._redis.call("INFO", "memory")) or {}
        policy = str(facts.get("maxmemory_policy", "unknown"))
        if policy.startswith("allkeys"):
            raise ConfigError(
                f"Redis at {self._redis.address} may delete jobs when its memory is full (maxmemory-policy {policy}): "
                "set maxmemory-policy noeviction"
            )
        if policy.startswith("volatile") and policy != self._policy:
            # jobs have no time to live, so they are safe; answers and leases have one
            log.warning("Redis may delete results when its memory is full: set noeviction", policy=policy)
        self._policy = policy

    async def _make_groups(self) -> None:
        for part in self._config.parts:
            for stream in self._config.streams(part):
                try:
                    # from 0, so that jobs submitted before the first worker count too
                    await self._redis.call("XGROUP", "CREATE", stream, names.GROUP, "0", "MKSTREAM")
                except QueueFault as error:
                    # `take` reports the broken keys, and continues with the others
                    if not ("BUSYGROUP" in str(error) or "WRONGTYPE" in str(error)):
                        raise

    def _bulk_share(self, permits: int) -> int:
        self._takes += 1
        return permits // 4 if permits >= 4 else int(self._takes % 4 == 0)

    async def _take_from(self, part: Part, plan: ClaimPlan, limits: _LaneLimits) -> list[Delivery]:
        """Claim from one part, and note the state of its lanes."""
        lost = part in self._unanswered
        self._unanswered.add(part)
        taken = await self._run_take(part, plan, limits, lost)
        if not (lost and len(taken.rows) == plan.permits):
            self._unanswered.discard(part)
        now, lanes = taken.now, self._config.lanes_of(part)
        self._clock = now - _monotonic()
        self._claims.hold_back(part if taken.holding else None)
        self._note_spoilt(part, frozenset(key.decode(errors="replace") for key in taken.spoilt))
        self._watch.update(part, taken.ends, (taken.due - now) / 1000 if taken.due else None, self._spoilt[part])
        return self._claims.accept([to_delivery(row, part.partition, now, lanes) for row in taken.rows], plan)

    def _note_spoilt(self, part: Part, keys: frozenset[str]) -> None:
        """Log each unusable key once, and skip it from now on."""
        for key in sorted(keys.difference(*self._spoilt.values())):
            log.error("a key in Redis has the wrong type and is ignored: delete it", key=key)
        self._spoilt[part] = keys

    async def _run_take(self, part: Part, plan: ClaimPlan, limits: _LaneLimits, lost: bool) -> Taken:
        config, partition = self._config, part.partition
        held = [f"{key.lane} {key.entry_id}" for key in self._claims.held if key.partition == partition] if lost else []
        args = [*self._prelude(partition), partition, plan.permits, limits.last_lane_least, int(lost), plan.occupancy]
        args += [int(plan.quarantine_first), in_ms(2 * config.lease), config.small_batch]
        args += [config.tenant_limit or _NO_LIMIT, limits.later_lanes_most, *held]
        streams = config.streams(part)
        return Taken.of(await self._redis.run(self._scripts["take"], streams, args), len(streams))

    async def _extend_in(self, partition: int, held: list[Delivery], record: bytes) -> list[int]:
        keys = [names.live(self._config.worker, partition), names.workers(partition)]
        keys += [names.job(job.job_id, partition) for job in held]
        args: list[Any] = [*self._prelude(partition), in_ms(self._config.lease), record]
        for job in held:
            args += [job.attempt, job.entry_id]
        now, *codes = await self._redis.run(self._scripts["extend"], keys, args)
        self._clock = now - _monotonic()
        return list(codes)

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
        keys: list[str] = []
        # while the job runs its log is kept as long as a result
        args: list[Any] = [*self._prelude(partition), in_ms(self._config.result_ttl), _LOG_LENGTH]
        for group in groups:
            job = group.delivery
            keys += [names.job(job.job_id, partition), names.log(job.job_id, partition)]
            args += [job.attempt, job.entry_id, job.lane, names.events(job.job_id, partition), int(job.logged)]
            args += [group.first_seq, len(group.packed), *group.packed]
        return list(await self._redis.run(self._scripts["append"], keys, args))

    async def _settle_in(self, partition: int, settlements: list[Settlement]) -> list[int]:
        config, keys = self._config, [names.dead(partition), names.delayed(partition)]
        times = (in_ms(config.log_ttl), _LOG_LENGTH, in_ms(config.result_ttl), lane_ttls(config.lane_result_ttls))
        args: list[Any] = [*self._prelude(partition), *times]
        for settlement in settlements:
            job = settlement.delivery
            keys.append(names.lane(job.lane, partition))
            keys += [name(job.job_id, partition) for name in (names.job, names.log, names.result)]
            command, state, extra = command_of(settlement.outcome)
            args += [job.job_id, job.attempt, job.entry_id, names.events(job.job_id, partition), command, state]
            args += [settlement.seq, settlement.event, settlement.result, extra, settlement.celery_ending]
            args.append(int(job.logged))
        codes = list(await self._redis.run(self._scripts["settle"], keys, args))
        for settlement in settlements:
            if isinstance(settlement.outcome, outcomes.Retry):
                self._watch.expect(partition, settlement.outcome.delay)
        return codes


def _monotonic() -> int:
    return time.monotonic_ns() // 1_000_000
