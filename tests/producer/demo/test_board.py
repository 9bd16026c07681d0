import io

from rich.console import Console

from stoop.client.build_job import build_job
from stoop.demo.board import Board
from stoop.demo.burst import DemoJob
from stoop_schemas.event import DeltaEvent, Event, FinishedEvent, RestartedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from tests.producer.scripted import answer, completed, failing

ASK = DemoJob("query", None, {"question": "how many?"}, truth="two")
JOB = build_job("query", question="how many?")


def shown(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=180, height=40), out


def test_off_a_terminal_each_job_is_one_line_when_it_ends() -> None:
    console, out = shown(terminal=False)
    with Board([ASK, ASK], console) as board:
        for event in answer(JOB):
            board.update(board.lines[0], event)
    assert len(out.getvalue().splitlines()) == 1
    assert "job 1 completed" in out.getvalue()
    assert "two red circles" in out.getvalue()
    assert board.lines[1].state is State.QUEUED


def test_on_a_terminal_tokens_show_while_they_stream() -> None:
    console, out = shown(terminal=True)
    with Board([ASK], console) as board:
        for event in answer(JOB)[:-2]:
            board.update(board.lines[0], event)
        board.refresh()
    assert "running" in out.getvalue()
    assert "two" in out.getvalue()


def test_a_restart_clears_the_streamed_text() -> None:
    console, _ = shown(terminal=False)
    board = Board([ASK], console)
    for event in (*answer(JOB)[:-1], RestartedEvent(id=JOB.id, seq=9, attempt=2)):
        board.update(board.lines[0], event)
    assert board.lines[0].text == ""


def test_the_table_has_answers_failures_and_the_truth() -> None:
    console, out = shown(terminal=False)
    board = Board([ASK, ASK], console)
    for event in answer(JOB):
        board.update(board.lines[0], event)
    for event in failing(Failure.of(FailureCode.CONTEXT_OVERFLOW, "too long"))(JOB):
        board.update(board.lines[1], event)
    console.print(board.table())
    assert "two red circles" in out.getvalue()
    assert "context_overflow" in out.getvalue()
    assert "expected" in out.getvalue()


def test_answers_are_shown_as_they_are() -> None:
    text = "a :cat: [red]b[/red] \x1b[2J"
    running: Event = DeltaEvent(id=JOB.id, seq=1, attempt=1, text=text)
    ended: Event = FinishedEvent(id=JOB.id, seq=2, result=completed(JOB.id, Skill.QUERY, Output(answer=text)))
    console, out = shown(terminal=False)
    board = Board([ASK], console)
    board.update(board.lines[0], running)
    console.print(board.table())
    board.update(board.lines[0], ended)
    console.print(board.table())
    assert out.getvalue().count("a :cat: [red]b[/red] ␛[2J") == 3
    assert "\x1b" not in out.getvalue()
