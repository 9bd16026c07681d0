"""The operator's commands, as a person and as a program run them, on a real Redis."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.cli.render_queue import rates
from stoop.config import ProducerConfig
from stoop.operator import LaneStatus, QueueStatus
from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from tests.project.modules import ROOT

EVIL = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\nforged line \u202e\x9b"


class Shell:
    """Runs `stoop` in this process, with its Redis in the environment."""

    def __init__(self, connection: "redis.Redis[str]") -> None:
        self.redis = connection

    def run(self, *arguments: str, typed: str | None = None, columns: int = 300) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, list(arguments), input=typed, env={"COLUMNS": str(columns)})
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def json(self, *arguments: str) -> Any:
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
    [row] = shell.json("status", "--interval", "0")
    assert [(lane["lane"], lane["waiting"], lane["paused"]) for lane in row["lanes"]] == [
        ("interactive", 0, False),
        ("bulk", 1, True),
    ]
    assert (row["dead"], row["rates"]) == (1, {})


def test_status_shows_rates_between_two_measurements(shell: Shell) -> None:
    [row] = shell.json("status", "--interval", "0.01", "--lanes", "bulk, urgent")
    assert [lane["lane"] for lane in row["lanes"]] == ["bulk", "urgent"]
    assert row["rates"] == {"submitted": 0.0, "ended": 0.0}


def test_rates_are_differences_of_totals() -> None:
    def status(at: int, waiting: int, **totals: int) -> QueueStatus:
        lane = LaneStatus("bulk", waiting, 1, None, paused=False)
        return QueueStatus(0, at, (lane,), 0, {"small": 0, "alone": 0}, 0, 1, totals)

    row = rates(status(1000, 10, completed=5), status(3000, 14, completed=9, failed=2, retried=1))
    assert row == {"submitted": 5.0, "ended": 3.0, "completed": 2.0, "failed": 1.0, "retried": 0.5}
    assert rates(status(1000, 1), status(1000, 1)) == {}


def test_status_watches_until_it_is_stopped(shell: Shell) -> None:
    looks = 0

    class Breaking(CliRunner):
        pass

    class Interrupted:
        async def lanes(self, partition: int = 0) -> list[str]:
            return []

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
    [row] = shell.json("workers")
    assert (row["worker"], row["facts"]["permits"]) == ("gpu-1-7", 128)
    shell.redis.delete(names.live("gpu-1-7"))
    exit_code, _, err = shell.run("workers")
    assert (exit_code, "stoop worker" in err) == (0, True)


def test_status_shows_a_lane_that_no_worker_serves(shell: Shell) -> None:
    shell.redis.xadd(names.lane("typo"), {"j": "{}"})
    shell.redis.hset(names.workers(), "w1", json.dumps({"lanes": ["interactive", "bulk"]}))
    shell.redis.set(names.live("w1"), "1")
    exit_code, out, _ = shell.run("status", "--interval", "0")
    assert exit_code == 0
    assert [line for line in out.splitlines() if "no worker" in line] == [
        line for line in out.splitlines() if "typo" in line
    ]
    [row] = shell.json("status", "--interval", "0")
    assert [(lane["lane"], lane["served"]) for lane in row["lanes"]] == [
        ("interactive", True),
        ("bulk", True),
        ("typo", False),
    ]


def test_models_are_listed_with_their_skills_and_workers(shell: Shell) -> None:
    moon = {"name": "moondream2", "model": EVIL, "skills": ["query", "point"], "max_context": 2048, "permits": 8}
    qwen = {"name": "qwen3-8b", "serves_default": False, "skills": ["chat"], "in_flight": 1, "permits": 4}
    row = {"a": moon, "b": {**moon, "max_context": 1024}, "c": qwen, "gone": {"name": "llama"}}
    shell.redis.hset(names.workers(), mapping={name: json.dumps(facts) for name, facts in row.items()})
    for name in "abc":
        shell.redis.set(names.live(name), "1")
    exit_code, out, err = shell.run("models")
    assert (exit_code, err) == (0, "")
    assert all(word in out for word in ("moondream2 (default)", "query, point", "1024", "qwen3-8b", "1 of 4"))
    assert "llama" not in out and "\x1b[2J" not in out
    first, second = shell.json("models")
    assert (first["name"], first["default"], first["workers"], first["skills"]) == (
        "moondream2",
        True,
        2,
        ["query", "point"],
    )
    assert (second["name"], second["default"], second["workers"]) == ("qwen3-8b", False, 1)


def test_two_default_models_are_warned_about(shell: Shell) -> None:
    for name in ("moondream2", "qwen3-8b"):
        shell.redis.hset(names.workers(), name, json.dumps({"name": name}))
        shell.redis.set(names.live(name), "1")
    exit_code, out, err = shell.run("models")
    assert exit_code == 0 and "qwen3-8b (default)" in out
    assert "--no-serve-default" in err


def test_without_a_worker_there_is_no_model(shell: Shell) -> None:
    exit_code, _, err = shell.run("models")
    assert (exit_code, "stoop worker" in err) == (0, True)
    assert shell.json("models") == []


def test_dead_letters_are_listed_in_pages(shell: Shell) -> None:
    letters = [shell.bury(f"job-{number}") for number in range(3)]
    exit_code, out, _ = shell.run("dead", "list", "--count", "2")
    assert exit_code == 0
    assert "job-2" in out and "job-1" in out and "job-0" not in out
    [row] = shell.json("dead", "list", "--before", letters[1])
    assert (row["letter"], row["job_id"], row["code"]) == (letters[0], "job-0", "worker_lost")


def test_names_and_ids_are_never_truncated(shell: Shell) -> None:
    job_id, worker, lane = names.new_id(), "gpu-host-17.rack-4.example.org-48211-a1b2c3", "overnight-" * 12
    letter = shell.bury(job_id, message="the worker died " * 9)
    facts = {"host": "gpu-host-17.rack-4.example.org", "pid": 7, "model": "acme/moondream-fine-tuned-for-shelves-2026"}
    shell.redis.hset(names.workers(), worker, json.dumps({**facts, "lanes": [lane]}))
    shell.redis.set(names.live(worker), "1")
    _, out, _ = shell.run("dead", "list", columns=80)
    assert letter in out and job_id in out
    _, out, _ = shell.run("workers", columns=80)
    assert all(whole in out for whole in (worker, facts["host"], facts["model"], lane))
    _, out, _ = shell.run("status", "--interval", "0", "--lanes", lane, columns=80)
    cells = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert "".join(cells) == lane


def test_an_empty_list_of_dead_letters_is_not_an_error(shell: Shell) -> None:
    assert shell.run("dead", "list")[0] == 0
    assert shell.json("dead", "list") == []


def test_a_letter_is_shown_whole_by_its_name_or_its_jobs(shell: Shell) -> None:
    letter = shell.bury("mine")
    for name in (letter, "mine"):
        exit_code, out, _ = shell.run("dead", "show", name)
        assert exit_code == 0
        assert all(word in out for word in (letter, "mine", "bulk", "worker_lost", "died", '"skill": "query"'))
    assert json.loads(shell.json("dead", "show", "mine")["job"])["question"] == EVIL


@pytest.mark.parametrize("command", [("list",), ("show", "mine")])
def test_the_text_of_a_letter_cannot_control_the_terminal(shell: Shell, command: tuple[str, ...]) -> None:
    shell.bury("mine", message=EVIL)
    _, out, _ = shell.run("dead", *command)
    assert "[red]x[/red]" in out, "no markup is read"
    assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(out)
    assert "\nforged" not in out
    _, out, _ = shell.run("dead", *command, "--json")
    assert out.isascii()
    assert len(out.splitlines()) == 1


def test_the_name_of_a_letter_that_is_not_there_is_safe_too(shell: Shell) -> None:
    exit_code, out, err = shell.run("dead", "show", EVIL)
    assert (exit_code, out) == (1, "")
    assert "no dead letter" in err
    assert "\x1b" not in err


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
    assert shell.json("dead", "redrive", "--all", "--code", "engine_fault") == {"redriven": 125, "gone": 0, "lives": 0}
    assert shell.redis.xlen(names.dead()) == 125
    assert shell.json("dead", "purge", "--all", "--yes") == {"purged": 125}
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
        ("dead", "list", "--before", "mine"),
        ("status", "--partitions", "one"),
        ("status", "--partitions", "-1"),
        ("pause", "two words", "--force"),
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
    assert shell.json("dead", "list") == []
    assert len(json.loads(shell.run("dead", "--partition", "3", "list", "--json")[1])) == 1


def test_a_lane_is_paused_and_resumed(shell: Shell) -> None:
    assert shell.run("pause", "bulk")[1] == "lane bulk is paused\n"
    assert shell.run("pause", "bulk")[1] == "lane bulk was paused already\n"
    assert shell.redis.smembers(names.paused()) == {"bulk"}
    assert shell.json("resume", "bulk", "--partitions", "0,1") == {"lane": "bulk", "state": "open", "changed": True}
    assert shell.redis.exists(names.paused()) == 0


@pytest.mark.parametrize("state", ["queued", "running", "delayed"])
def test_a_job_is_cancelled(shell: Shell, state: str) -> None:
    shell.redis.hset(names.job("mine"), "state", state)
    exit_code, out, _ = shell.run("cancel", "mine")
    assert (exit_code, out) == (0, f"asked to cancel job mine (it was {state})\n")
    assert shell.redis.hget(names.job("mine"), "cancel") == "1"
    assert shell.json("cancel", "mine") == {"id": "mine", "was": state, "asked": True}


def test_cancelling_an_unknown_job_fails_but_is_remembered(shell: Shell) -> None:
    exit_code, out, err = shell.run("cancel", "raw")
    assert (exit_code, out) == (1, "")
    assert "knows no job raw: if a bare XADD put it there" in err
    assert 0 < shell.redis.pttl(names.job("raw")) <= 30 * 86_400_000


def test_an_unknown_lane_is_neither_paused_nor_resumed(shell: Shell) -> None:
    for verb in ("pause", "resume"):
        exit_code, out, err = shell.run(verb, "bluk")
        assert (exit_code, out) == (1, "")
        assert "no worker serves the lane bluk" in err and "did you mean 'bulk'?" in err
    assert json.loads(shell.run("pause", "bluk", "--json")[1])["error"]["kind"] == "NotFound"
    assert shell.redis.exists(names.paused()) == 0
    assert shell.run("pause", "bluk", "--force")[1] == "lane bluk is paused\n"
    assert shell.run("resume", "bluk")[1] == "lane bluk is open\n"


def test_a_lane_is_known_that_is_configured_served_or_holds_jobs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_LANES", "urgent,interactive")
    monkeypatch.setenv("STOOP_LANE_BOUNDS", "small=5")
    shell.redis.hset(names.workers(), "w", json.dumps({"lanes": ["slow"]}))
    shell.redis.set(names.live("w"), "1")
    shell.redis.xadd(names.lane("left"), {"j": "{}"})
    for lane in ("urgent", "small", "slow", "left"):
        assert shell.run("pause", lane)[:2] == (0, f"lane {lane} is paused\n")


def test_the_quarantine_is_not_paused(shell: Shell) -> None:
    for lane in ("quarantine:alone", "qwen3:quarantine:alone"):
        assert shell.run("pause", lane, "--force")[0] == 2
    assert shell.redis.exists(names.paused()) == 0


def test_an_ended_job_cannot_be_cancelled(shell: Shell) -> None:
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


@pytest.mark.parametrize("columns", ["0", "1", "10", "abc", "-5"])
def test_a_table_is_readable_at_any_width_of_the_terminal(shell: Shell, columns: str) -> None:
    shell.redis.xadd(names.lane("bulk"), {"j": "{}"})
    for arguments, words in (
        (["status", "--interval", "0"], ("interactive", "waiting", "in flight", "oldest")),
        (["dead", "list"], ("failure", "worker_lost")),
    ):
        shell.bury("mine")
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": columns})
        assert done.exit_code == 0
        assert all(word in done.stdout for word in words), done.stdout


def run_stoop(arguments: list[str], redis_url: str, **options: Any) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment["STOOP_REDIS_URL"] = redis_url
    command = [sys.executable, "-m", "stoop", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_watch_into_a_pipe_shows_each_look_and_ends_with_its_reader(redis_url: str, as_json: tuple[str, ...]) -> None:
    arguments = ["status", "--watch", "--interval", "0.05", *as_json]
    with run_stoop(arguments, redis_url, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None and watching.stderr is not None
        looks = 0
        for line in watching.stdout:
            looks += "interactive" in line
            if looks == 3:
                break
        watching.stdout.close()
        assert watching.wait(20) == 1
        assert watching.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "arguments", [["status", "--interval", "0"], ["workers", "--json"], ["--help"], ["dead", "list", "--json"]]
)
def test_output_that_cannot_be_written_is_one_line(redis_url: str, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full, run_stoop(arguments, redis_url, stdout=full) as running:
        _, err = running.communicate(timeout=20)
        assert (running.returncode, err) == (1, "error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("command", [("cancel",), ("dead", "show"), ("dead", "redrive"), ("dead", "purge")])
@pytest.mark.parametrize("name", ["\udcff", "99999999999999999999-0", "٣-٣"])
def test_a_name_of_any_bytes_is_one_that_the_queue_does_not_know(
    shell: Shell, command: tuple[str, ...], name: str
) -> None:
    exit_code, _, err = shell.run(*command, name, *(["--yes"] if command[-1] == "purge" else []))
    assert (exit_code, "holds no queue" in err) == (1, False)


def test_an_answer_is_awaited_under_a_name_of_any_bytes(shell: Shell) -> None:
    exit_code, _, err = shell.run("result", "\udcff", "--timeout", "0.1")
    assert (exit_code, err.count("\n")) == (1, 1)


def test_a_wait_of_no_time_is_refused_by_the_name_of_its_option(shell: Shell) -> None:
    exit_code, _, err = shell.run("result", "any", "--timeout", "0")
    assert (exit_code, "--timeout" in err, "STOOP_" in err) == (2, True, False)


def test_a_foreign_letter_in_a_job_is_ignored(shell: Shell) -> None:
    for letter in ("x", "-", "9" * 30 + "-0", ""):
        shell.redis.hset(names.job("odd"), "letter", letter)
        exit_code, _, err = shell.run("dead", "show", "odd")
        assert (exit_code, "holds no queue" in err) == (1, False)


def test_nothing_is_older_than_the_first_letter_that_there_can_be(shell: Shell) -> None:
    shell.bury("a")
    assert shell.json("dead", "list", "--before", "0-0") == []
    assert shell.json("dead", "list", "--before", "0") == []
    assert len(shell.json("dead", "list", "--before", "9" * 19)) == 1


def test_totals_that_are_not_numbers_are_left_out(shell: Shell) -> None:
    shell.redis.hset(names.totals(), mapping={"completed": 3, "failed": "x", "dead": "", "expired": "9" * 40})
    assert shell.json("status")[0]["totals"] == {"completed": 3}


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_was_closed_before_the_start_is_left_out(redis_url: str, closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "stoop", "status"]
    done = subprocess.run(command, env={**os.environ, "STOOP_REDIS_URL": redis_url}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from stoop.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_the_package_loads_nothing_that_is_not_asked_for() -> None:
    """Otherwise Ctrl-C could come while it loads, before the command line can handle it."""
    script = "import sys, stoop; print([n for n in ('asyncio', 'msgspec', 'redis', 'typer') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
