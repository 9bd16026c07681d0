"""Workers keep running and answer valid jobs, whatever the roles with write access put into the queue."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_worker.jobs.broker import Delivery, EventGroup
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Dead, Outcome, Released, Retry
from stoop_worker.jobs.redis.broker import RedisBroker
from tests.contract.queues import FAILURE, OnRedis, ending, new_job

LANES = ("interactive", "steady", "bulk")
VICTIM, OTHER, RAW = "victim", "other", "5-1"
HUGE_ID = "18446744073709551615-18446744073709551615"
NUMBERS = ["x", "", "-1", "1.5", "1e3", "inf", "nan", "9" * 15, "9" * 40, "0x10"]
NAMES = [*NUMBERS, "/", "a/b/c", "steady", "quarantine:alone", "no such lane", "interactive/", "-", HUGE_ID]
BYTES = b"\xff\x00"
NUMERIC = ("attempt", "seq", "queued_at", "crashes", "started_at", "spared", "unlogged")
FIELDS: dict[str, Sequence[str | bytes]] = {
    **{name: [*NUMBERS, BYTES] for name in NUMERIC},
    **{name: [*NAMES, BYTES] for name in ("lane", "home", "entry", "worker", "parked", "digest", "model")},
    "state": [*NAMES, "queued", "running", "delayed", "completed"],
    "cancel": ["1", ""],
}
SHARED = [
    names.bell(),
    names.delayed(),
    names.cancelled(),
    *(names.tenants(lane) for lane in (*LANES, "quarantine:small")),
    *(
        names.lane(lane)
        for lane in ("interactive", "bulk", "bulk/acme", "no-such", *map(names.quarantine_lane, names.QUARANTINES))
    ),
]
INNER = [
    names.paused(),
    names.quarantine_workers(),
    names.workers(),
    names.totals(),
    names.dead(),
    names.celery_outbox(),
]
OWN = [key(job) for key in (names.job, names.log, names.result) for job in (VICTIM, OTHER, RAW)]
ENTRIES = ["", "no JSON", "null", "[1]", "[" * 2000, '{"id": 5}', '{"id": "victim"}', '{"id": "", "deadline": 1e999}']

Command = tuple[Any, ...]


def wrong_types(key: str) -> list[list[Command]]:
    """Replace a key by one of each type."""
    made: list[Command] = [
        ("SET", key, "x"),
        ("RPUSH", key, "x"),
        ("SADD", key, "x"),
        ("HSET", key, "x", "y"),
        ("ZADD", key, "1", "x"),
        ("XADD", key, "*", "x", "y"),
    ]
    return [[("DEL", key), command] for command in made]


SPOILING: list[list[Command]] = [
    *(commands for key in (*SHARED, *INNER, *OWN) for commands in wrong_types(key)),
    *([("HSET", names.job(VICTIM), field, value)] for field, values in FIELDS.items() for value in values),
    *([("HDEL", names.job(VICTIM), field)] for field in FIELDS),
    *(
        [("ZADD", names.delayed(), score, job)]
        for score in ("0", "inf", "-inf", "1e300")
        for job in (VICTIM, "", b"\xff/")
    ),
    *(
        [("HSET", names.job(VICTIM), "state", "delayed", "parked", text), ("ZADD", names.delayed(), 0, VICTIM)]
        for text in NAMES
    ),
    *([("ZADD", names.cancelled(), "1", job)] for job in (VICTIM, "", "nobody", b"\xff/")),
    [("HSET", names.job("ghost"), "state", "queued", "cancel", "1"), ("ZADD", names.cancelled(), "1", "ghost")],
    *(
        [
            ("ZADD", names.tenants(lane), score, tenant),
            ("XADD", names.lane(lane).encode() + b"/" + tenant, "*", "j", "x"),
        ]
        for lane in LANES
        for score in ("inf", "-inf", "1e300")
        for tenant in (b"acme", b"\xff", b"a/b", b" ")
    ),
    *([("XADD", names.lane("interactive"), "*", field, text)] for field in ("j", "m", "x") for text in ENTRIES),
    *([("XADD", names.lane("bulk"), "*", "id", name, "j", "{}")] for name in NAMES),
    *([("XADD", key, HUGE_ID, "j", "x")] for key in SHARED if ":jobs:" in key or key == names.bell()),
    *([("HSET", names.totals(), field, "x")] for field in ("completed", "dead", "reclaimed")),
    [("XADD", names.lane("interactive"), "*", *(part for i in range(9000) for part in (f"f{i}", "x")))],
    [("XADD", names.lane("interactive"), "*", *("j", "x") * 9000)],
    [("DEL", names.job(RAW)), ("SET", names.job(RAW), "x"), ("XADD", names.lane("bulk"), RAW, "j", "no JSON")],
    [("HSET", names.job(VICTIM), "state", "running", "worker", "worker-2", "attempt", "1")],
]
STAGES = 60
OUTCOMES: list[Outcome] = [Completed(), Released(), Crashed(), Retry(FAILURE, 0.0), Dead(FAILURE), Cancelled()]


class SpoiltQueue:
    """Two workers, the spoilt jobs, and one intact job."""

    def __init__(self, queue: OnRedis) -> None:
        self.queue = queue
        self.brokers = [queue.broker(f"worker-{n}", lanes=LANES) for n in (1, 2)]
        self.held: dict[RedisBroker, list[Delivery]] = {broker: [] for broker in self.brokers}

    async def open(self) -> None:
        await self.queue.clear()
        for broker in self.brokers:
            await broker.open()
        victims = [new_job(id=VICTIM), new_job(id=OTHER, tenant="acme", lane="bulk")]
        await self.queue.transport().submit(victims)

    async def spoil(self, commands: Sequence[Command]) -> None:
        for command in commands:
            replies = await self.queue.call_all([command], errors=True)
            assert len(replies) == 1

    async def step(self, outcome: Outcome) -> None:
        """Let each worker make every call that it can make, and end its jobs with this outcome."""
        for broker in self.brokers:
            held = self.held[broker] + await broker.take(8)
            await broker.append([EventGroup(one, one.next_seq, (b"said",)) for one in held])
            await broker.extend(b"{}")
            await broker.settle([ending(one, one.verdict or outcome, seq=one.next_seq + 1) for one in held])
            self.held[broker] = []
            await broker.reclaim()
            await broker.wait(0.001)

    async def claim(self) -> None:
        """Let the workers claim all jobs."""
        for broker in self.brokers:
            self.held[broker] += await broker.take(4)

    async def answers_a_whole_job(self) -> None:
        job = new_job(id=names.new_id())
        await self.queue.put("steady", {"j": pack(job).decode()})
        for _ in range(12):
            await self.step(Completed())
            if await self.queue.call("EXISTS", names.result(job.id)):
                return
        raise AssertionError("a job that is whole was not answered")


@pytest.fixture
async def spoilt(redis_url: str) -> AsyncIterator[SpoiltQueue]:
    queue = OnRedis(redis_url)
    with capture_logs():
        yield SpoiltQueue(queue)
    await queue.close()


@pytest.mark.parametrize("claimed", [False, True])
async def test_each_of_them_before_a_claim_and_after_it(spoilt: SpoiltQueue, claimed: bool) -> None:
    for number in range(STAGES):
        await spoilt.open()
        if claimed:
            await spoilt.claim()
        # a few together, of different kinds, because a queue costs far more than they do
        together = SPOILING[number::STAGES]
        for commands in together:
            await spoilt.spoil(commands)
        try:
            await spoilt.step(OUTCOMES[number % len(OUTCOMES)])
            await spoilt.answers_a_whole_job()
        except Exception as error:
            raise AssertionError(f"{together!r:.2000}") from error


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(SPOILING), st.sampled_from([None, "claim", *OUTCOMES])), min_size=2, max_size=8)
)
def test_any_of_them_together(redis_url: str, done: list[tuple[list[Command], Outcome | str | None]]) -> None:
    async def run() -> None:
        queue = OnRedis(redis_url)
        spoilt = SpoiltQueue(queue)
        try:
            await spoilt.open()
            for commands, then in done:
                await spoilt.spoil(commands)
                if then == "claim":
                    await spoilt.claim()
                elif then is not None:
                    await spoilt.step(then)  # type: ignore[arg-type]
            await spoilt.answers_a_whole_job()
        finally:
            await queue.close()

    with capture_logs():
        asyncio.run(run())
