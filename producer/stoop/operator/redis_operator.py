"""The operator's side of the queue on Redis: counts by script, dead letters by page, never a scan of all keys."""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from stoop.operator.letters import facts_of, job_of, read_failure, read_letter, text_of
from stoop.operator.port import (
    DeadLetter,
    HeldJob,
    LaneStatus,
    LivingWorker,
    MemoryUse,
    QueueStatus,
    Redriven,
    TenantStatus,
)
from stoop.redis.calls import RedisCalls, Script
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import QueuedEvent
from stoop_schemas.job import MODEL_PATTERN, NAME_PATTERN

__all__ = ["RedisOperator"]

_PACKAGE = "stoop.operator"
_LETTER = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")  # Redis may refuse a number of twenty digits
_COUNT = re.compile(rb"[0-9]{1,18}")
_NAME = re.compile(NAME_PATTERN)
_MOST_TENANTS = 100
_FAILURES = 2000
"""Dead letters that one script call reads: some 10 ms, in which Redis serves no other client."""
_ENDED = "ended:"
_LATEST = 1e15
_ENTRY_LANE = re.compile(r"[A-Za-z0-9._:-]{1,256}(/[A-Za-z0-9._:-]{1,256})?")
_VERDICTS = {0: Redriven.GONE, 1: Redriven.YES, 2: Redriven.LIVES}


class RedisOperator:
    """The `Operator` on a Redis server; connects at first use."""

    def __init__(self, url: str) -> None:
        self._calls = RedisCalls(url)
        self._status = Script(_PACKAGE, "status")
        self._workers = Script(_PACKAGE, "workers")
        self._redrive = Script(_PACKAGE, "redrive")
        self._failures = Script(_PACKAGE, "failures")
        self._tenants = Script(_PACKAGE, "tenants")

    async def status(self, lanes: Sequence[str], partition: int = 0) -> QueueStatus:
        """Count in one script call, so that the figures belong together."""
        p = partition
        keys = [names.delayed(p), names.dead(p), names.paused(p), names.workers(p), names.totals(p)]
        keys += [names.quarantine(kind, p) for kind in names.QUARANTINES]
        apart = _quarantines(lanes)
        for lane in (*lanes, *apart):
            keys += [names.lane(lane, p), names.tenants(lane, p)]
        reply = await self._calls.run(self._status, keys, [names.GROUP, *lanes, *apart])
        at, delayed, dead, workers, totals, small, alone, rows = reply
        quarantined = {
            f"{model}:{kind}": sum(row[:2])
            for (model, kind), row in zip(apart.values(), rows[len(lanes) :], strict=True)
        }
        served = await self._served(partition)
        counts = {text_of(name): int(count) for name, count in _pairs(totals) if _COUNT.fullmatch(count)}
        return QueueStatus(
            partition=partition,
            at=at,
            lanes=tuple(_lane(lane, row, at, served, counts) for lane, row in zip(lanes, rows, strict=False)),
            delayed=delayed,
            quarantined={
                **dict(zip(names.QUARANTINES, (small, alone), strict=True)),
                **{name: count for name, count in quarantined.items() if count},
            },
            dead=dead,
            workers=workers,
            totals={name: count for name, count in counts.items() if not name.startswith(_ENDED)},
        )

    async def lanes(self, partition: int = 0) -> list[str]:
        """Look for streams among all keys, because a bare XADD may make a lane that is in no list."""
        stem = names.lane("", partition)
        streams = await self._calls.streams(f"{stem}*")
        found = {stream.removeprefix(stem).partition("/")[0] for stream in streams} | await self._served(partition)
        return sorted(lane for lane in found if names.quarantine_of(lane) is None)

    async def _served(self, partition: int) -> set[str]:
        return {str(lane) for one in await self.workers(partition) for lane in _list(one.facts.get("lanes"))}

    async def workers(self, partition: int = 0) -> list[LivingWorker]:
        """Read the registry, and drop the workers whose live key is gone."""
        reply = await self._calls.run(self._workers, [names.workers(partition)], [names.live("", partition)])
        living = [LivingWorker(text_of(name), partition, facts_of(packed)) for name, packed in _pairs(reply)]
        return sorted(living, key=lambda one: one.worker)

    async def letters(self, count: int, *, before: str | None = None, partition: int = 0) -> list[DeadLetter]:
        """Read one page of the stream, backwards."""
        if before is not None and not before.strip("0-"):
            return []  # nothing is older than the first id of all, and Redis refuses such a range
        newest = "+" if before is None else f"({before}"
        entries = await self._calls.call("XREVRANGE", names.dead(partition), newest, "-", "COUNT", count)
        return [read_letter(entry, fields) for entry, fields in entries]

    async def failures(self, count: int, *, before: str | None = None, partition: int = 0) -> list[DeadLetter]:
        """Read the stream backwards by script calls, which leave the jobs where they are."""
        found: list[DeadLetter] = []
        while (asked := min(_FAILURES, count - len(found))) > 0:
            newest = "+" if before is None else f"({before}"
            rows = await self._calls.run(self._failures, [names.dead(partition)], [newest, asked])
            found += [read_failure(*row) for row in rows]
            if len(rows) < asked:
                break
            before = found[-1].letter
        return found

    async def tenants(self, lanes: Sequence[str], partition: int = 0) -> list[TenantStatus]:
        """Count in one script call."""
        if not lanes:
            return []
        keys = [key for lane in lanes for key in (names.lane(lane, partition), names.tenants(lane, partition))]
        rows = await self._calls.run(self._tenants, keys, [_MOST_TENANTS])
        counted = [(lane, pair) for lane, row in zip(lanes, rows, strict=True) for pair in _pairs(row)]
        return [TenantStatus(lane, text_of(tenant), int(jobs)) for lane, (tenant, jobs) in counted]

    async def memory(self) -> MemoryUse | None:
        """Ask the server; in a Cluster, only one node."""
        facts = await self._calls.call("INFO", "memory")
        used, limit = facts.get("used_memory"), facts.get("maxmemory")
        return MemoryUse(used, limit or 0) if isinstance(used, int) else None

    async def job(self, job_id: str) -> Mapping[str, str]:
        """Read the job's hash."""
        record = await self._calls.call("HGETALL", names.job(job_id))
        return {text_of(name): text_of(value) for name, value in record.items()}

    async def held(self, lanes: Sequence[str], count: int, partition: int = 0) -> list[HeldJob]:
        """Read the beginning of each place."""
        flat = await self._calls.call("ZRANGE", names.delayed(partition), 0, count - 1, "WITHSCORES")
        held = [HeldJob(text_of(job), "delayed", _time(due)) for job, due in _pairs(flat)]
        apart = {names.quarantine_lane(kind): kind for kind in names.QUARANTINES}
        apart |= {lane: f"{model}:{kind}" for lane, (model, kind) in _quarantines(lanes).items()}
        for lane, place in apart.items():
            entries = await self._calls.call("XRANGE", names.lane(lane, partition), "-", "+", "COUNT", count)
            held += [HeldJob(text_of(fields.get(b"id", entry)), place) for entry, fields in entries]
        return held

    async def packed(self, job_id: str) -> bytes:
        """Read the entry that the job's hash names, or the copy that a delayed job carries."""
        found = await self._calls.call("HMGET", names.job(job_id), "state", "lane", "entry", "parked")
        state, lane, entry, parked = (value or b"" for value in found)
        if state == b"delayed":
            return job_of(_unparked(parked))
        if not _ENTRY_LANE.fullmatch(text_of(lane)) or not _LETTER.fullmatch(text_of(entry)):
            return b""
        stream = names.lane(text_of(lane), names.partition(job_id))
        entries = await self._calls.call("XRANGE", stream, entry, entry)
        return job_of(entries[0][1]) if entries else b""

    async def find(self, letter_or_job: str, partition: int = 0) -> DeadLetter | None:
        """Read the letter; a job's hash names its letter."""
        letter = letter_or_job
        if not _LETTER.fullmatch(letter):
            own = await self._calls.call("HGET", names.job(letter_or_job), "letter")
            letter = text_of(own or b"")  # producers may write to a job's hash
            if not _LETTER.fullmatch(letter):
                return None
        entries = await self._calls.call("XRANGE", names.dead(partition), letter, letter)
        return read_letter(*entries[0]) if entries else None

    async def redrive(self, letters: Sequence[DeadLetter], partition: int = 0) -> list[Redriven]:
        """Put all of them back in one script call."""
        if not letters:
            return []
        keys, args = [names.dead(partition)], []
        for letter in letters:
            lane = _home(letter)
            keys.append(names.lane(lane, partition))
            keys += [name(letter.job_id, partition) for name in (names.job, names.result, names.log)]
            event = pack(QueuedEvent(id=letter.job_id, seq=0))
            args += [letter.letter, letter.job_id, lane, names.events(letter.job_id, partition), event]
        return [_VERDICTS[code] for code in await self._calls.run(self._redrive, keys, args)]

    async def purge(self, letters: Sequence[DeadLetter], partition: int = 0) -> int:
        """Delete the entries from the stream; the jobs' results stay for their time."""
        if not letters:
            return 0
        return int(await self._calls.call("XDEL", names.dead(partition), *(letter.letter for letter in letters)))

    async def pause(self, lane: str, partition: int = 0) -> bool:
        """Add the lane to the set that every take reads."""
        return bool(await self._calls.call("SADD", names.paused(partition), lane))

    async def resume(self, lane: str, partition: int = 0) -> bool:
        """Take the lane out of the set, and wake the workers."""
        was_paused = await self._calls.call("SREM", names.paused(partition), lane)
        await self._calls.call("XADD", names.bell(partition), "MAXLEN", 1, "*", "r", 1)
        return bool(was_paused)

    async def close(self) -> None:
        """Disconnect."""
        await self._calls.close()


def _quarantines(lanes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name the quarantine's lanes of the models that these lanes are of, each with its model and kind."""
    models = dict.fromkeys(lane.partition(":")[0] for lane in lanes if ":" in lane)
    return {names.quarantine_lane(kind, model): (model, kind) for model in models for kind in names.QUARANTINES}


def _lane(lane: str, row: Sequence[int], now: int, served: Collection[str], counts: Mapping[str, int]) -> LaneStatus:
    waiting, in_flight, oldest, paused = row
    age = max(0.0, (now - oldest) / 1000) if oldest else None
    return LaneStatus(lane, max(0, waiting), in_flight, age, bool(paused), lane in served, counts.get(_ENDED + lane, 0))


def _unparked(parked: bytes) -> dict[bytes, bytes]:
    """Read the fields of an entry that its job's hash carries, as `settle` packed them. Anybody may write there."""
    try:
        flat = msgspec.msgpack.decode(parked, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {name.encode(): value.encode() for name, value in zip(flat[::2], flat[1::2], strict=False)}


def _time(score: bytes) -> int:
    """Convert a time, however large its number is."""
    return int(min(max(0.0, float(score)), _LATEST))


def _home(letter: DeadLetter) -> str:
    """Return the lane a letter goes back to: where it was, its job's own if that was a quarantine, or the first."""
    job = facts_of(letter.packed)
    own = names.model_lane(str(job.get("lane", names.DEFAULT_LANES[0])), _model(job.get("model")))
    asked = [letter.lane.partition("/")[0], own]
    # a lane's name becomes part of a key, so it must be one
    fit = [lane for lane in asked if len(lane) <= 128 and _NAME.fullmatch(lane) and not names.is_reserved(lane)]
    return fit[0] if fit else names.DEFAULT_LANES[0]


def _model(named: object) -> str | None:
    return named if isinstance(named, str) and re.fullmatch(MODEL_PATTERN, named) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _pairs(flat: Sequence[bytes]) -> "zip[tuple[bytes, bytes]]":
    return zip(flat[::2], flat[1::2], strict=True)
