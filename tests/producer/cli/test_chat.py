"""`stoop chat`: an interrupt in the middle of an answer, and an answer that is cut."""

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from stoop import Client
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop_schemas.chat import Answer
from stoop_schemas.event import DeltaEvent, Event, FinishedEvent, QueuedEvent
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from tests.producer.scripted import ScriptedTransport


class Keyboard(io.StringIO):
    """The lines that somebody enters at a terminal."""

    def isatty(self) -> bool:
        return True


class Done(NamedTuple):
    exit_code: object
    stdout: str
    stderr: str


class Interrupted(Client):
    """Ctrl-C comes once, after the first words of the first answer."""

    interrupts = 1

    def stream(self, *arguments: Any, **named: Any) -> Iterator[Event]:
        for event in super().stream(*arguments, **named):
            yield event
            if isinstance(event, DeltaEvent) and self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt


def answer(job: Job, finish_reason: str = "stop") -> Iterator[Event]:
    assert job.messages is not None
    text = f"to {job.messages[-1].content}"
    yield QueuedEvent(id=job.id, seq=0)
    yield DeltaEvent(id=job.id, seq=1, attempt=1, text=text)
    output = Output(message=Answer(text))
    result = Result(
        id=job.id, status=State.COMPLETED, skill=Skill.CHAT, output=output, finish_reason=finish_reason, worker="w1"
    )
    yield FinishedEvent(id=job.id, seq=2, attempt=1, result=result)


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> ScriptedTransport:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)
    return ScriptedTransport(answer)


Run = Callable[..., Done]


@pytest.fixture
def run(transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `stoop chat` in this process on the scripted queue."""

    def run(*arguments: str, typed: io.StringIO | None = None, kind: type[Client] = Client) -> Done:
        monkeypatch.setattr(sys, "stdin", typed or Keyboard())
        with pytest.raises(SystemExit) as ended:
            app(["chat", *arguments], obj=lambda config: kind(config, transport=transport))
        return Done(ended.value.code, *capsys.readouterr())

    return run


def test_an_interrupt_cancels_the_job_and_the_conversation_goes_on(run: Run, transport: ScriptedTransport) -> None:
    done = run(typed=Keyboard("one\ntwo\nthree\n"), kind=Interrupted)
    assert done.exit_code == 0, done
    first, *others = transport.submitted
    assert transport.cancelled == [first.id]
    assert "stopped: the chat goes on without this question" in done.stderr
    asked = [[str(message.content) for message in job.messages or ()] for job in others]
    assert asked == [["two"], ["two", "to two", "three"]], "the stopped question is forgotten"


def test_an_interrupt_of_a_conversation_from_a_file_cancels_the_job_and_ends_the_command(
    run: Run, transport: ScriptedTransport
) -> None:
    done = run(typed=io.StringIO("one\ntwo\n"), kind=Interrupted)
    assert done.exit_code == 130
    assert transport.cancelled == [job.id for job in transport.submitted] != []


def test_an_interrupt_of_one_message_names_the_commands_that_continue(run: Run, transport: ScriptedTransport) -> None:
    done = run("one", "--stream", kind=Interrupted)
    [job] = transport.submitted
    assert (done.exit_code, transport.cancelled) == (130, []), "as of every other skill's command"
    assert f"`stoop cancel {job.id}` ends it" in done.stderr


@pytest.mark.parametrize("flags", [("one", "--stream"), ("one",), ()], ids=["streamed", "whole", "conversation"])
def test_an_answer_that_is_cut_says_so_beside_its_text(
    run: Run, transport: ScriptedTransport, flags: tuple[str, ...]
) -> None:
    whole = run(*flags, typed=Keyboard("one\n"))
    assert "at the limit" not in whole.stdout + whole.stderr
    transport.script = lambda job: answer(job, "length")
    cut = run(*flags, typed=Keyboard("one\n"))
    assert cut.stdout.removeprefix("> ").startswith("to one\n") and "at the limit" not in cut.stdout
    assert "cut at the limit" in cut.stderr


@pytest.mark.parametrize("option", ["--max-objects", "--draw"])
def test_options_about_places_in_an_image_do_not_exist(run: Run, transport: ScriptedTransport, option: str) -> None:
    done = run("one", option, "3")
    assert (done.exit_code, transport.submitted) == (2, [])
    assert "No such option" in done.stderr
