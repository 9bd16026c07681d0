"""`stoop chat`: one message, or a conversation in the terminal."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from stoop.cli import render
from stoop.cli.exit_codes import FAILED, exit_on_error
from stoop.cli.result import await_answer, show_answer
from stoop.cli.skill_options import TextOptions, with_options
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.errors import ConfigError, StoopError
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["chat"]

_HELP = (
    "Enter a message; /image FILE adds an image to it; /new starts another chat; Ctrl-C stops an answer; an empty line"
    " or Ctrl-D ends."
)


@dataclass(slots=True)
class _Conversation:
    """The messages so far, and the images that go into the next one."""

    system: str | None
    images: list[str]
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def add_question(self, text: str) -> None:
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": image}} for image in self.images]
        self.images = []
        self.messages.append({"role": "user", "content": [*parts, {"type": "text", "text": text}] if parts else text})

    def drop_question(self) -> None:
        """Forget the last question with its images."""
        self.messages.pop()

    def add_answer(self, result: Result) -> None:
        text = result.output.text if result.output else None
        self.messages.append({"role": "assistant", "content": text or ""})


@with_options
def chat(
    context: typer.Context,
    message: Annotated[str | None, typer.Argument(help="The message; without it a conversation begins.")] = None,
    image: Annotated[list[str] | None, typer.Option(help="An image file or address; may be given again.")] = None,
    system: Annotated[str | None, typer.Option(help="Instructions for the model, before the messages.")] = None,
    date: Annotated[str | None, typer.Option(help="Today's date for models that ask, as 2026-01-31.")] = None,
    *,
    options: TextOptions,
) -> None:
    """Write the next message of a chat.

    For example: stoop chat "What is on this photo?" --image photo.jpg --stream
    """
    _check(options, message)
    connect: type[Client] = context.obj or Client
    conversation = _Conversation(system, list(image or ()))
    with exit_on_error(as_json=options.json):
        config = ProducerConfig().replace(lane=options.lane, job_model=options.model, timeout_seconds=options.timeout)
        with connect(config) as client:
            if message is None:
                _converse(client, options, conversation, date)
                return
            conversation.add_question(message)
            _ask(client, options, conversation, date)


def _check(options: TextOptions, message: str | None) -> None:
    if options.stream and options.json:
        raise typer.BadParameter("choose --stream or --json")
    if options.no_wait and options.stream:
        raise typer.BadParameter("--no-wait goes without --stream")
    if message is None and (options.json or options.no_wait):
        raise typer.BadParameter("--json and --no-wait need a message")


def _converse(client: Client, options: TextOptions, conversation: _Conversation, date: str | None) -> None:
    if sys.stdin.isatty():
        render.print_aside(_HELP)
    for line in _lines():
        command, _, rest = line.partition(" ")
        if command == "/image" and rest.strip():
            conversation.images.append(rest.strip())
        elif command == "/image":
            render.print_aside(_HELP)
        elif command == "/new":
            conversation.forget()
        else:
            conversation.add_question(line)
            with _costing_one_question(conversation):
                _answer(client, options, conversation, date)


@contextlib.contextmanager
def _costing_one_question(conversation: _Conversation) -> Iterator[None]:
    """At a terminal, let an error or Ctrl-C cost only the last question, not the conversation."""
    try:
        yield
    except (StoopError, KeyboardInterrupt) as error:
        if not sys.stdin.isatty():
            raise
        if isinstance(error, StoopError):
            render.print_error(error, exit_code=FAILED, as_json=False)
        else:
            render.print_aside("\n(stopped: the chat goes on without this question)")
        conversation.drop_question()


def _answer(client: Client, options: TextOptions, conversation: _Conversation, date: str | None) -> None:
    """Answer the last question. Ctrl-C cancels the job, because nobody waits for its answer any more."""
    job = _prepare(client, options, conversation, date, stream=True)
    try:
        result = show_answer(client, client.submit(job), stream=True)
    except KeyboardInterrupt:
        client.cancel(job.id)  # obeyed even if it comes before the job
        raise
    conversation.add_answer(result)


def _lines() -> Iterator[str]:
    """Yield the entered lines, until an empty line or the end."""
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        except UnicodeDecodeError:
            raise ConfigError("the input is not text in UTF-8") from None
        if not line:
            return
        yield line


def _ask(client: Client, options: TextOptions, conversation: _Conversation, date: str | None) -> None:
    job_id = client.submit(_prepare(client, options, conversation, date, stream=options.stream))
    if options.no_wait:
        render.print_submitted(job_id, as_json=options.json)
    else:
        await_answer(client, job_id, stream=options.stream, as_json=options.json)


def _prepare(
    client: Client, options: TextOptions, conversation: _Conversation, date: str | None, *, stream: bool
) -> Job:
    settings, messages = options.settings, conversation.messages
    return client.prepare("chat", settings=settings, messages=messages, stream=stream, date=date)
