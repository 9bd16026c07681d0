"""The operator's side on a real Redis: counts, and actions on dead letters and lanes."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from stoop.errors import QueueUnavailable
from stoop.operator import DeadLetter, Redriven
from stoop.operator.redis_operator import RedisOperator
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.failure import Failure, FailureCode
from stoop_worker.jobs.broker import EventGroup
from stoop_worker.jobs.outcome import Completed, Crashed, Dead, Retry
from tests.contract.queues import OnRedis, crash_under, die_under, ending, new_job

LANES = names.DEFAULT_LANES
LOST = Dead(Failure.of(FailureCode.WORKER_LOST, "its worker died under it"))


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


async def bury(queue: OnRedis, *job_ids: str, lane: str = "interactive", tenant: str | None = None) -> None:
    """Make the jobs dead letters, as a worker does."""
    broker = queue.broker("undertaker")
    await broker.open()
    await queue.transport().submit([new_job(id=job_id, lane=lane, tenant=tenant) for job_id in job_ids])
    taken = await broker.take(len(job_ids))
    assert all(await broker.settle([ending(delivery, LOST) for delivery in taken]))


async def put_letter(queue: OnRedis, **fields: str) -> str:
    flat = [part for field in fields.items() for part in field]
    return str(await queue.call("XADD", names.dead(), "*", *flat))


async def test_an_empty_queue_has_zero_counts(operator: RedisOperator) -> None:
    status = await operator.status(LANES)
    assert [(lane.lane, lane.waiting, lane.in_flight, lane.oldest_seconds) for lane in status.lanes] == [
        ("interactive", 0, 0, None),
        ("bulk", 0, 0, None),
    ]
    assert (status.delayed, status.dead, status.workers, status.held) == (0, 0, 0, 0)
    assert status.quarantined == {"small": 0, "alone": 0}


async def test_waiting_and_running_jobs_are_counted_apart(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.transport().submit([new_job(lane="bulk") for _ in range(5)])
    broker = queue.broker()
    await broker.open()
    await broker.take(2)
    status = await operator.status(LANES)
    [_, bulk] = status.lanes
    assert (bulk.waiting, bulk.in_flight) == (3, 2)
    assert bulk.oldest_seconds is not None and 0 <= bulk.oldest_seconds < 60
    assert status.held == 5


async def test_the_oldest_is_the_oldest_that_waits(queue: OnRedis, operator: RedisOperator) -> None:
    now = int((await queue.call("TIME"))[0])
    for seconds in (50, 20):
        await queue.call("XADD", names.lane("bulk"), f"{1000 * (now - seconds)}-0", "j", "{}")
    broker = queue.broker()
    await broker.open()
    await broker.take(1)
    [_, bulk] = (await operator.status(LANES)).lanes
    assert bulk.oldest_seconds is not None and 19 <= bulk.oldest_seconds <= 25


async def test_a_job_taken_over_is_waiting_again(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.transport().submit([new_job() for _ in range(5)])
    heir = queue.broker("heir")
    await heir.open()
    await die_under(queue, 3, heir)
    await heir.take(1)
    [interactive, _] = (await operator.status(LANES)).lanes
    assert (interactive.waiting, interactive.in_flight) == (4, 1)
    assert interactive.oldest_seconds is not None and interactive.oldest_seconds < 60


async def test_endings_are_counted(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker()
    await broker.open()
    before = (await operator.status(LANES)).totals
    await queue.transport().submit([new_job(), new_job()])
    await broker.settle([ending(delivery, Completed()) for delivery in await broker.take(2)])
    await bury(queue, "poison")
    await bury(queue, "other", lane="bulk")
    status = await operator.status(LANES)
    assert before == {}
    assert status.totals == {"completed": 2, "failed": 2, "dead": 2}
    assert [lane.ended for lane in status.lanes] == [3, 1]


async def test_jobs_outside_the_lanes_are_named_and_shown(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker("shaky")
    await broker.open()
    jobs = [new_job(id=name, question=name) for name in ("again", "suspect", "waits")]
    await queue.transport().submit(jobs)
    again, suspect = await broker.take(2)
    await broker.settle([ending(again, Retry(LOST.failure, 60.0)), ending(suspect, Crashed())])
    held = await operator.held(LANES, 10)
    assert [(job.job_id, job.place) for job in held] == [("again", "delayed"), ("suspect", "small")]
    assert held[0].due is not None and held[0].due > (await operator.status(LANES)).at
    assert await operator.held(LANES, 10, partition=1) == []
    for name in ("again", "suspect", "waits"):
        assert json.loads(await operator.packed(name))["question"] == name
    assert await operator.packed("nobody") == b""


async def test_foreign_values_in_a_job_are_not_an_error(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.call("ZADD", names.delayed(), "inf", "far")
    [far] = await operator.held(LANES, 10)
    assert (far.job_id, far.place) == ("far", "delayed")
    for state, field, value in (("delayed", "parked", b"\xff"), ("queued", "lane", "a b"), ("queued", "entry", "-")):
        await queue.call("HSET", names.job("odd"), "lane", "bulk", "entry", "1-1")
        await queue.call("HSET", names.job("odd"), "state", state, field, value)
        assert await operator.packed("odd") == b""


async def test_attempts_are_kept_until_the_job_is_redriven(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.transport().submit([new_job(id="poison")])
    heir = queue.broker("heir")
    await heir.open()
    await die_under(queue, 1, heir)
    [delivery] = await heir.take(1)
    record = await operator.job("poison")
    assert record["claimed:1"].split()[0].isdecimal() and record["lost:1"].split()[1] == "doomed"
    assert record["claimed:2"].split() == [record["started_at"], "heir"]
    assert await heir.settle([ending(delivery, LOST)])
    await operator.redrive(await operator.letters(1))
    assert not [name for name in await operator.job("poison") if ":" in name]


async def test_a_dead_letter_has_its_job_and_its_failure(queue: OnRedis, operator: RedisOperator) -> None:
    await bury(queue, "poison", lane="bulk")
    [letter] = await operator.letters(10)
    assert (letter.job_id, letter.lane, letter.attempt, letter.code) == ("poison", "bulk", 1, "worker_lost")
    assert letter.worker == "undertaker"
    assert letter.message == "its worker died under it"
    assert json.loads(letter.packed)["id"] == "poison"
    assert await operator.find(letter.letter) == letter
    assert await operator.find("poison") == letter
    assert await operator.find("nobody") is None
    assert await operator.find("1-1") is None


async def test_letters_come_in_pages_newest_first(queue: OnRedis, operator: RedisOperator) -> None:
    await bury(queue, *(f"job-{number}" for number in range(5)))
    first = await operator.letters(2)
    second = await operator.letters(2, before=first[-1].letter)
    last = await operator.letters(2, before=second[-1].letter)
    assert [letter.job_id for letter in (*first, *second, *last)] == [f"job-{number}" for number in (4, 3, 2, 1, 0)]


async def test_failures_are_the_letters_without_their_jobs(
    queue: OnRedis, operator: RedisOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoop.operator.redis_operator._FAILURES", 3)
    await bury(queue, *(f"job-{number}" for number in range(4)), lane="bulk", tenant="acme")
    await bury(queue, "alone")
    await put_letter(queue, x="y")
    letters = await operator.letters(10)
    assert [letter.tenant for letter in letters] == ["", "", *["acme"] * 4]
    bare = [msgspec.structs.replace(letter, packed=b"", worker="") for letter in letters]
    for count in (1, 3, 5, 10):
        assert await operator.failures(count) == bare[:count]
    assert await operator.failures(10, before=letters[3].letter) == bare[4:]


@pytest.mark.parametrize(
    "fields",
    [
        {"x": "y"},
        {"id": "a", "failure": "not json", "attempt": "many"},
        {"id": "a", "failure": "[1]"},
        {"id": "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "failure": '{"code": 7}'},
    ],
)
async def test_a_letter_without_usable_fields_is_listed(
    queue: OnRedis, operator: RedisOperator, fields: dict[str, str]
) -> None:
    entry = await put_letter(queue, **fields)
    [letter] = await operator.letters(10)
    assert letter.letter == entry
    assert letter.attempt == 0


async def test_a_redriven_job_runs_as_if_just_submitted(queue: OnRedis, operator: RedisOperator) -> None:
    await bury(queue, "poison", lane="bulk")
    transport, broker = queue.transport(), queue.broker("second")
    await broker.open()
    assert await operator.redrive(await operator.letters(10)) == [Redriven.YES]
    assert await transport.state("poison") == "queued"
    assert await transport.result("poison") is None
    assert await operator.letters(10) == []
    [again] = await broker.take(5)
    assert (again.job_id, again.lane, again.attempt, again.crashes) == ("poison", "bulk", 1, 0)
    assert again.verdict is None
    assert await broker.settle([ending(again, Completed())]) == [True]
    assert await transport.state("poison") == "completed"
    seqs = [json.loads(event)["seq"] for event in await transport.log("poison") if event.startswith(b"{")]
    assert seqs == [0], "the log starts over; the ending of this test is no JSON"


async def test_a_redriven_job_starts_with_a_clean_log(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker("undertaker")
    await broker.open()
    await queue.transport().submit([new_job(id="poison")])
    [delivery] = await broker.take(1)
    await queue.call("XADD", names.log("poison"), "999-0", "e", "of somebody else")
    await broker.append([EventGroup(delivery, 1, (b"started",))])
    assert await broker.settle([ending(delivery, LOST)]) == [True]
    assert await queue.read("poison", "unlogged") == "1"
    await queue.change("poison", spared="1")
    assert await operator.redrive(await operator.letters(10)) == [Redriven.YES]
    assert [await queue.read("poison", field) for field in ("unlogged", "spared")] == [None, None]
    [again] = await broker.take(1)
    assert await broker.append([EventGroup(again, 1, (b"one", b"two"))]) == [True]
    assert (await queue.transport().log("poison"))[-2:] == [b"one", b"two"]


async def test_a_letter_is_redriven_once(queue: OnRedis, operator: RedisOperator) -> None:
    await bury(queue, "poison")
    letters = await operator.letters(10)
    assert [await operator.redrive(letters), await operator.redrive(letters)] == [[Redriven.YES], [Redriven.GONE]]
    assert await queue.depth("interactive") == 1


@pytest.mark.parametrize("state", ["queued", "running", "delayed", "completed"])
async def test_a_job_that_lives_is_not_redriven(queue: OnRedis, operator: RedisOperator, state: str) -> None:
    await bury(queue, "poison")
    await queue.change("poison", state=state)
    assert await operator.redrive(await operator.letters(10)) == [Redriven.LIVES]
    assert len(await operator.letters(10)) == 1


@pytest.mark.parametrize(
    ("lane", "own", "goes_to"),
    [
        ("bulk", "interactive", "bulk"),
        ("bulk/acme", "bulk", "bulk"),
        ("quarantine:alone", "bulk", "bulk"),
        ("quarantine:alone", "quarantine:small", "interactive"),
        ("a b", "x" * 200, "interactive"),
    ],
)
async def test_a_letter_goes_back_to_a_lane_workers_know(
    queue: OnRedis, operator: RedisOperator, lane: str, own: str, goes_to: str
) -> None:
    await put_letter(queue, id="mine", lane=lane, j=json.dumps({"id": "mine", "lane": own}))
    await operator.redrive(await operator.letters(1))
    assert await queue.depth(goes_to) == 1


async def test_a_malformed_job_is_redriven_unchanged(queue: OnRedis, operator: RedisOperator) -> None:
    await put_letter(queue, id="1-1", lane="bulk", attempt="1", worker="w", failure="{}", j="{ not json")
    await operator.redrive(await operator.letters(1))
    [[_, fields]] = await queue.call("XRANGE", names.lane("bulk"), "-", "+")
    assert fields == {"id": "1-1", "j": "{ not json"}


async def test_purged_letters_are_gone(queue: OnRedis, operator: RedisOperator) -> None:
    await bury(queue, "one", "two", "three")
    letters = await operator.letters(2)
    assert await operator.purge(letters) == 2
    assert await operator.purge(letters) == 0
    assert [letter.job_id for letter in await operator.letters(10)] == ["one"]
    assert await operator.purge([]) == 0
    assert await operator.redrive([]) == []


async def test_workers_whose_lease_ran_out_are_forgotten(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.call("HSET", names.workers(), "living", '{"host": "h", "pid": 7}', "gone", "{}", "odd", "not json")
    for worker in ("living", "odd"):
        await queue.call("SET", names.live(worker), "1")
    facts = {worker.worker: worker.facts for worker in await operator.workers()}
    assert facts == {"living": {"host": "h", "pid": 7}, "odd": {}}
    assert await queue.call("HEXISTS", names.workers(), "gone") == 0
    assert (await operator.status(LANES)).workers == 2


async def test_nothing_is_claimed_from_a_paused_lane(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker()
    await broker.open()
    assert [await operator.pause("bulk"), await operator.pause("bulk")] == [True, False]
    await queue.transport().submit([new_job(lane="bulk"), new_job(lane="interactive")])
    assert [delivery.lane for delivery in await broker.take(4)] == ["interactive"]
    assert [lane.paused for lane in (await operator.status(LANES)).lanes] == [False, True]
    assert [await operator.resume("bulk"), await operator.resume("bulk")] == [True, False]
    assert [delivery.lane for delivery in await broker.take(4)] == ["bulk"]


async def test_each_partition_is_counted_separately(queue: OnRedis, operator: RedisOperator) -> None:
    await queue.transport().submit([new_job(id=names.new_id(3))])
    assert (await operator.status(LANES, 3)).held == 1
    assert (await operator.status(LANES, 0)).held == 0


async def test_the_cost_of_a_look_does_not_grow_with_the_queue(queue: OnRedis, operator: RedisOperator) -> None:
    async def commands() -> int:
        await queue.call("CONFIG", "RESETSTAT")
        await operator.status(LANES)
        await operator.letters(10)
        stats: dict[str, Any] = await queue.call("INFO", "commandstats")
        assert not {"cmdstat_keys", "cmdstat_scan"} & set(stats)
        return sum(each["calls"] for name, each in stats.items())

    await bury(queue, "first")
    few = await commands()
    await bury(queue, *(f"job-{number}" for number in range(200)))
    await queue.transport().submit([new_job(lane="bulk") for _ in range(500)])
    assert await commands() <= few + 2


async def test_an_operator_without_redis_is_reported() -> None:
    operator = RedisOperator("redis://:hidden-word@127.0.0.1:1/0")
    with pytest.raises(QueueUnavailable) as away:
        await operator.status(LANES)
    assert "hidden-word" not in str(away.value)
    await operator.close()


def test_a_letter_is_a_value() -> None:
    letter = DeadLetter("1-1", "a", "bulk", 1, 0, "w", "internal", "m", 1, pack(new_job(id="a")))
    with pytest.raises(AttributeError):
        letter.lane = "other"  # type: ignore[misc]


async def test_every_lane_that_exists_is_named_also_one_that_no_worker_serves(
    queue: OnRedis, operator: RedisOperator
) -> None:
    broker = queue.broker(models=("qwen3",))
    await broker.open()
    await broker.extend(b'{"name":"qwen3","lanes":["qwen3:interactive","qwen3:bulk"]}')
    await queue.call("XADD", names.lane("typo"), "*", "j", "{}")
    await queue.transport().submit([new_job(lane="late", tenant="acme", stream=True)])
    await queue.call("SET", names.lane("no-stream"), "1")
    lanes = await operator.lanes()
    assert lanes == ["late", "qwen3:bulk", "qwen3:interactive", "typo"]
    status = await operator.status(lanes)
    assert [(one.lane, one.waiting, one.served) for one in status.lanes] == [
        ("late", 1, False),
        ("qwen3:bulk", 0, True),
        ("qwen3:interactive", 0, True),
        ("typo", 1, False),
    ]


async def test_jobs_in_the_quarantine_of_a_model_are_counted_apart(queue: OnRedis, operator: RedisOperator) -> None:
    broker = queue.broker(models=("qwen3",))
    await broker.open()
    await queue.transport().submit([new_job(model="qwen3") for _ in range(3)])
    await crash_under(broker, 3)
    status = await operator.status(await operator.lanes())
    assert status.quarantined == {"small": 0, "alone": 0, "qwen3:small": 3}
    assert status.held == 3


async def test_a_job_of_a_model_goes_back_to_that_model_s_lane(queue: OnRedis, operator: RedisOperator) -> None:
    packed = pack(new_job(id="poison", model="qwen3", lane="bulk")).decode()
    for lane in ("qwen3:bulk", "qwen3:quarantine:alone", ""):
        await put_letter(queue, id="poison", j=packed, lane=lane)
        [letter] = await operator.letters(1)
        await queue.call("DEL", names.job("poison"))
        assert await operator.redrive([letter]) == [Redriven.YES]
    assert await queue.depth("qwen3:bulk") == 3
