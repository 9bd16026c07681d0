"""Answers, events and errors as a person or a program reads them. Answers go to stdout, all else to stderr."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from producer.errors import JobFailed, StoopError
from schemas.event import DeltaEvent, Event, ObjectEvent, ReasoningEvent, RestartedEvent
from schemas.result import Result

__all__ = ["print_error", "print_result", "print_stream", "short_answer"]


def print_result(result: Result, *, as_json: bool) -> None:
    """Print the answer: text as it is, boxes and points as a table; as JSON the result of the wire, on one line."""
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    out = Console(highlight=False)
    output = msgspec.to_builtins(result.output)
    if "reasoning" in output:
        out.print(f"[dim]{escape(output['reasoning']['text'])}[/dim]\n")
    for name in ("answer", "caption"):
        if name in output:
            out.print(escape(output[name]), soft_wrap=True)
    for name in ("objects", "points"):
        if name in output:
            out.print(_table(name, output[name]) if output[name] else f"no {name} found")
    _print_footer(result)


def print_stream(events: Iterable[Event]) -> None:
    """Print what comes as it comes: text on one line, one box or point a line."""
    out, aside = Console(highlight=False), Console(stderr=True, highlight=False)
    for event in events:
        if isinstance(event, DeltaEvent):
            out.print(escape(event.text), end="", soft_wrap=True)
        elif isinstance(event, ReasoningEvent):
            out.print(f"[dim]{escape(event.text)}[/dim]", end="", soft_wrap=True)
        elif isinstance(event, ObjectEvent):
            out.print(_places(event.object), soft_wrap=True)
        elif isinstance(event, RestartedEvent):
            out.print()
            aside.print("(run anew: what was printed before this line counts no more)", style="yellow")
    out.print()


def print_error(error: StoopError, *, exit_code: int, as_json: bool) -> None:
    """Print what went wrong and what to do: one line on stderr, or as JSON one object on stdout."""
    if not as_json:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        return
    told: dict[str, Any] = {
        "error": {"kind": type(error).__name__, "message": str(error), "exit_code": exit_code},
    }
    if isinstance(error, JobFailed):
        told["result"] = msgspec.to_builtins(error.result)
    print(json.dumps(told, ensure_ascii=False))


def short_answer(result: Result, width: int = 60) -> str:
    """Say the answer, or why there is none, in at most `width` characters."""
    output, text = result.output, ""
    if result.failure is not None:
        text = f"{result.failure.code}: {result.failure.message}"
    elif output is not None and output.objects is not None:
        text = f"{len(output.objects)} boxes " + ", ".join(_places(msgspec.to_builtins(box)) for box in output.objects)
    elif output is not None and output.points is not None:
        text = f"{len(output.points)} points " + ", ".join(_places(msgspec.to_builtins(at)) for at in output.points)
    elif output is not None:
        text = output.answer or output.caption or ""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _print_footer(result: Result) -> None:
    spent = result.metrics
    run_ms = spent.fetch_time_ms + spent.image_time_ms + spent.prefill_time_ms + spent.decode_time_ms
    cut = ", cut at the limit" if result.finish_reason == "length" else ""
    Console(stderr=True, highlight=False).print(
        f"{spent.output_tokens} tokens{cut} · queued {spent.queue_time_ms:.0f} ms, run {run_ms:.0f} ms"
        f" · {result.model or 'model unknown'}",
        style="dim",
    )


def _table(name: str, places: list[dict[str, float]]) -> Table:
    table = Table("#", *places[0], title=f"{len(places)} {name}", title_justify="left")
    for number, place in enumerate(places, start=1):
        table.add_row(str(number), *(f"{value:.3f}" for value in place.values()))
    return table


def _places(place: dict[str, float]) -> str:
    return "(" + ", ".join(f"{value:.3f}" for value in place.values()) + ")"
