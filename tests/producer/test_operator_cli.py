"""The operator's commands, as a person and as a program run them, on a real Redis."""

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from producer.cli import app
from producer.config import ProducerConfig
from producer.operator import LaneStatus, QueueStatus
from producer.render_queue import rates, spelled
from schemas import names
from schemas.failure import Failure, FailureCode

EVIL = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\nforged line \u202e\x9b"


class Shell:
    """Runs `stoop` in this process, with its Redis in the environment."""

    def __init__(self, connection: "redis.Redis[str]") -> None:
        self.redis = connection

    def run(self, *arguments: str, typed: str | None = None) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, list(arguments), input=typed, env={"COLUMNS": "300"})
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def told(self, *arguments: str) -> Any:
        exit_code, out, err = self.run(*arguments, "--json")
        assert (exit_code, err) == (0, "")
        return json.loads(out)

    def bury(self, job_id: str, *, code: FailureCode = FailureCode.WORKER_LOST, message: str = "died") -> str:
        failure = json.dumps({"code": code, "message": message})
        job = json.dumps({"v": 1, "id": job_id, "skill": "query", "question": EVIL})
        fields = {"id": job_id, "j": job, "lane": "bulk", "attempt": "3", "worker": "w1", "failure": failure}
        letter = self.redis.xadd(names.dead(), fields)
        self.redis.hset(names.job(job_id), mapping={"state": "failed", "letter": letter})
        return str(letter)


@pytest.fixture
def shell(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)
    for name in ("STOOP_LANES", "STOOP_PARTITIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STOOP_REDIS_URL", redis_url)
    with redis.Redis.from_url(redis_url, decode_responses=True) as connection:
        yield Shell(connection)


def test_status_shows_every_lane(shell: Shell) -> None:
    shell.redis.xadd(names.lane("bulk"), {"j": "{}"})
    shell.redis.sadd(names.paused(), "bulk")
    shell.bury("a")
    exit_code, out, _ = shell.run("status", "--interval", "0")
    assert exit_code == 0
    assert all(word in out for word in ("interactive", "bulk", "paused", "dead 1", "delayed 0", "workers 0"))
    [told] = shell.told("status", "--interval", "0")
    assert [(lane["lane"], lane["waiting"], lane["paused"]) for lane in told["lanes"]] == [
        ("interactive", 0, False),
        ("bulk", 1, True),
    ]
    assert (told["dead"], told["rates"]) == (1, {})


def test_status_tells_rates_of_two_looks(shell: Shell) -> None:
    [told] = shell.told("status", "--interval", "0.01", "--lanes", "bulk, urgent")
    assert [lane["lane"] for lane in told["lanes"]] == ["bulk", "urgent"]
    assert told["rates"] == {"submitted": 0.0, "ended": 0.0}


def test_rates_are_differences_of_totals() -> None:
    def status(at: int, waiting: int, **totals: int) -> QueueStatus:
        lane = LaneStatus("bulk", waiting, 1, None, paused=False)
        return QueueStatus(0, at, (lane,), 0, {"small": 0, "alone": 0}, 0, 1, totals)

    told = rates(status(1000, 10, completed=5), status(3000, 14, completed=9, failed=2, retried=1))
    assert told == {"submitted": 5.0, "ended": 3.0, "completed": 2.0, "failed": 1.0, "retried": 0.5}
    assert rates(status(1000, 1), status(1000, 1)) == {}


def test_status_watches_until_it_is_stopped(shell: Shell) -> None:
    looks = 0

    class Breaking(CliRunner):
        pass

    class Interrupted:
        async def status(self, lanes: Any, partition: int = 0) -> QueueStatus:
            nonlocal looks
            looks += 1
            if looks == 3:
                raise KeyboardInterrupt
            return QueueStatus(partition, 1000 * looks, (), 0, {}, 0, 0)

        async def close(self) -> None:
            pass

    done = Breaking().invoke(app, ["status", "--watch", "--interval", "0", "--json"], obj=lambda config: Interrupted())
    assert done.exit_code != 0
    assert [len(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")] == [1, 1]


def test_workers_are_listed(shell: Shell) -> None:
    facts = {"host": "gpu-1", "pid": 7, "model": EVIL, "lanes": ["bulk"], "permits": 128, "in_flight": 3}
    shell.redis.hset(names.workers(), mapping={"gpu-1-7": json.dumps(facts), "gone": "{}"})
    shell.redis.set(names.live("gpu-1-7"), "1")
    exit_code, out, _ = shell.run("workers")
    assert exit_code == 0
    assert "gpu-1-7" in out and "gone" not in out and "128" in out
    assert "\x1b[2J" not in out
    [told] = shell.told("workers")
    assert (told["worker"], told["facts"]["permits"]) == ("gpu-1-7", 128)
    shell.redis.delete(names.live("gpu-1-7"))
    exit_code, _, err = shell.run("workers")
    assert (exit_code, "stoop worker" in err) == (0, True)


def test_dead_letters_are_listed_in_pages(shell: Shell) -> None:
    letters = [shell.bury(f"job-{number}") for number in range(3)]
    exit_code, out, _ = shell.run("dead", "list", "--count", "2")
    assert exit_code == 0
    assert "job-2" in out and "job-1" in out and "job-0" not in out
    [told] = shell.told("dead", "list", "--before", letters[1])
    assert (told["letter"], told["job_id"], told["code"]) == (letters[0], "job-0", "worker_lost")


def test_no_dead_letters_is_no_error(shell: Shell) -> None:
    assert shell.run("dead", "list")[0] == 0
    assert shell.told("dead", "list") == []


def test_a_letter_is_shown_whole_by_its_name_or_its_jobs(shell: Shell) -> None:
    letter = shell.bury("mine")
    for name in (letter, "mine"):
        exit_code, out, _ = shell.run("dead", "show", name)
        assert exit_code == 0
        assert all(word in out for word in (letter, "mine", "bulk", "worker_lost", "died", '"skill": "query"'))
    assert json.loads(shell.told("dead", "show", "mine")["job"])["question"] == EVIL


@pytest.mark.parametrize("command", [("list",), ("show", "mine")])
def test_what_a_letter_says_does_nothing_to_the_terminal(shell: Shell, command: tuple[str, ...]) -> None:
    shell.bury("mine", message=EVIL)
    _, out, _ = shell.run("dead", *command)
    assert "[red]x[/red]" in out, "no markup is read"
    assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(out)
    assert "\nforged" not in out
    _, out, _ = shell.run("dead", *command, "--json")
    assert out.isascii()
    assert len(out.splitlines()) == 1


def test_the_name_of_a_letter_that_is_not_there_is_spelled_too(shell: Shell) -> None:
    exit_code, out, err = shell.run("dead", "show", EVIL)
    assert (exit_code, out) == (1, "")
    assert "no dead letter" in err
    assert "\x1b" not in err


def test_spelled_text_is_cut_and_readable() -> None:
    assert spelled("plain ünïcode 犬 [b]").plain == "plain ünïcode 犬 [b]"
    assert spelled("a\x00b\x1b\u202e").plain == r"a\x00b\x1b\u202e"
    assert spelled("abcdef", 4).plain == "abc…"


def test_letters_are_redriven(shell: Shell) -> None:
    shell.bury("one")
    two = shell.bury("two")
    exit_code, out, _ = shell.run("dead", "redrive", "one", two)
    assert (exit_code, out) == (0, "2 sent back to their lanes\n")
    assert shell.redis.xlen(names.lane("bulk")) == 2
    assert shell.redis.hget(names.job("one"), "state") == "queued"


def test_all_letters_of_one_code_are_redriven(shell: Shell) -> None:
    for number in range(250):
        shell.bury(f"job-{number}", code=FailureCode.ENGINE_FAULT if number % 2 else FailureCode.MALFORMED)
    assert shell.told("dead", "redrive", "--all", "--code", "engine_fault") == {"redriven": 125, "gone": 0, "lives": 0}
    assert shell.redis.xlen(names.dead()) == 125
    assert shell.told("dead", "purge", "--all", "--yes") == {"purged": 125}
    assert shell.redis.xlen(names.dead()) == 0


def test_purging_all_asks_first(shell: Shell) -> None:
    shell.bury("mine")
    assert shell.run("dead", "purge", "--all", typed="n\n")[0] == 1
    assert shell.redis.xlen(names.dead()) == 1
    exit_code, out, _ = shell.run("dead", "purge", "--all", typed="y\n")
    assert (exit_code, "1 deleted" in out) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("dead", "redrive"),
        ("dead", "redrive", "mine", "--all"),
        ("dead", "redrive", "mine", "--code", "internal"),
        ("dead", "purge"),
        ("dead", "purge", "--all", "--json"),
        ("dead", "list", "--count", "0"),
        ("status", "--partitions", "one"),
        ("pause",),
        ("cancel",),
    ],
)
def test_wrong_usage_changes_nothing(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell.bury("mine")
    exit_code, out, _ = shell.run(*arguments)
    assert (exit_code, "error" in out) == (2, "--json" in arguments)
    assert shell.redis.xlen(names.dead()) == 1


def test_a_partition_has_its_own_letters(shell: Shell) -> None:
    failure = json.dumps({"code": "internal", "message": ""})
    shell.redis.xadd(names.dead(3), {"id": names.new_id(3), "failure": failure})
    assert shell.told("dead", "list") == []
    assert len(json.loads(shell.run("dead", "--partition", "3", "list", "--json")[1])) == 1


def test_a_lane_is_paused_and_resumed(shell: Shell) -> None:
    assert shell.run("pause", "bulk")[1] == "lane bulk is paused\n"
    assert shell.run("pause", "bulk")[1] == "lane bulk was paused already\n"
    assert shell.redis.smembers(names.paused()) == {"bulk"}
    assert shell.told("resume", "bulk", "--partitions", "0,1") == {"lane": "bulk", "state": "open", "changed": True}
    assert shell.redis.exists(names.paused()) == 0


@pytest.mark.parametrize("state", ["queued", "running", "delayed"])
def test_a_job_is_cancelled(shell: Shell, state: str) -> None:
    shell.redis.hset(names.job("mine"), "state", state)
    exit_code, out, _ = shell.run("cancel", "mine")
    assert (exit_code, out) == (0, f"asked for the end of job mine (it was {state})\n")
    assert shell.redis.hget(names.job("mine"), "cancel") == "1"
    assert shell.told("cancel", "mine") == {"id": "mine", "was": state, "asked": True}


def test_cancelling_what_is_not_known_yet_waits_for_it(shell: Shell) -> None:
    exit_code, out, _ = shell.run("cancel", "raw")
    assert (exit_code, "does not know it yet" in out) == (0, True)
    assert 0 < shell.redis.pttl(names.job("raw")) <= 30 * 86_400_000


def test_what_has_ended_cannot_be_cancelled(shell: Shell) -> None:
    shell.redis.hset(names.job("mine"), "state", "completed")
    exit_code, out, err = shell.run("cancel", "mine")
    assert (exit_code, out) == (1, "")
    assert "has ended: it is completed" in err
    assert json.loads(shell.run("cancel", "mine", "--json")[1])["error"]["kind"] == "NotFound"


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("workers",), ("dead", "list"), ("dead", "redrive", "--all"), ("pause", "bulk"), ("cancel", "a")],
)
def test_redis_that_is_not_there_is_exit_code_3(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.setenv("STOOP_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 3
    assert done.stderr.startswith("error: Redis at 127.0.0.1:1")
    assert "hunter2" not in done.output


def test_a_failure_has_the_code_of_the_contract() -> None:
    assert Failure.of(FailureCode.WORKER_LOST, "x").code == "worker_lost"
