"""Answers, events and errors as a person or a program reads them. Answers go to stdout, all else to stderr.

What a model wrote is printed as it is: it commands neither the terminal nor the library that prints it.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table

from producer.errors import JobFailed, QueueUnavailable, StoopError, TimedOut
from schemas.event import DeltaEvent, Event, ObjectEvent, ReasoningEvent, RestartedEvent
from schemas.result import Result

__all__ = [
    "legible",
    "print_aside",
    "print_error",
    "print_result",
    "print_stream",
    "print_submitted",
    "short_answer",
]

# control characters to their pictures (␛ for ESC); those from 0x80 on, which some terminals obey too, have none
_PICTURES: Final[dict[int, int | str]] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "�"),
}


def print_result(result: Result, *, as_json: bool) -> None:
    """Print the answer: text as it is, boxes and points as a table; as JSON the result of the wire, on one line."""
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    out = Console(highlight=False)
    output = msgspec.to_builtins(result.output)
    if "reasoning" in output:
        _write(out, f"{output['reasoning']['text']}\n\n", "dim")
    for name in ("answer", "caption"):
        if name in output:
            _write(out, f"{output[name]}\n")
    for name in ("objects", "points"):
        if name in output:
            out.print(_table(name, output[name]) if output[name] else f"no {name} found")
    _print_footer(result)


def print_stream(events: Iterable[Event]) -> None:
    """Print what comes as it comes: text on one line, one box or point a line."""
    out, aside = Console(highlight=False), Console(stderr=True, highlight=False)
    for event in events:
        if isinstance(event, DeltaEvent):
            _write(out, event.text)
        elif isinstance(event, ReasoningEvent):
            _write(out, event.text, "dim")
        elif isinstance(event, ObjectEvent):
            _write(out, f"{_places(event.object)}\n")
        elif isinstance(event, RestartedEvent):
            out.print()
            aside.print("(run anew: what was printed before this line counts no more)", style="yellow")
    out.print()


def print_error(error: StoopError, *, exit_code: int, as_json: bool) -> None:
    """Print what went wrong and what to do: one line on stderr, or as JSON one object on stdout."""
    message = str(error)
    if isinstance(error, QueueUnavailable):
        message = f"{message.rstrip('.')}: is Redis running there? STOOP_REDIS_URL says where"
    if isinstance(error, TimedOut):
        message += f" (`stoop result {error.job_id}` waits again, `stoop cancel {error.job_id}` ends it)"
    if not as_json:
        aside = Console(stderr=True, highlight=False)
        _write(aside, "error:", "red")
        _write(aside, f" {message}\n")
        return
    told: dict[str, Any] = {
        "error": {"kind": type(error).__name__, "message": message, "exit_code": exit_code},
    }
    if isinstance(error, JobFailed):
        told["result"] = msgspec.to_builtins(error.result)
    print(json.dumps(told, ensure_ascii=False))


def print_submitted(job_id: str, *, as_json: bool) -> None:
    """Print the id of a job that nobody waits for."""
    print(json.dumps({"id": job_id}) if as_json else legible(job_id))


def print_aside(text: str) -> None:
    """Print a line on stderr."""
    _write(Console(stderr=True, highlight=False), f"{text}\n", "yellow")


def legible(text: str) -> str:
    """Return the text with signs in place of all control characters but newline and tab."""
    return text.translate(_PICTURES)


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
    text = legible(" ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _write(out: Console, text: str, style: str = "") -> None:
    """Write the text literally: no markup, no emoji codes, no wrapping; `style` shows on a terminal only."""
    out.print(Segments([Segment(legible(text), Style.parse(style))]), crop=False)


def _print_footer(result: Result) -> None:
    spent = result.metrics
    run_ms = spent.fetch_time_ms + spent.image_time_ms + spent.prefill_time_ms + spent.decode_time_ms
    cut = ", cut at the limit" if result.finish_reason == "length" else ""
    _write(
        Console(stderr=True, highlight=False),
        f"{spent.output_tokens} tokens{cut} · queued {spent.queue_time_ms:.0f} ms, run {run_ms:.0f} ms"
        f" · {result.model or 'model unknown'}\n",
        "dim",
    )


def _table(name: str, places: list[dict[str, float]]) -> Table:
    table = Table("#", *places[0], title=f"{len(places)} {name}", title_justify="left")
    for number, place in enumerate(places, start=1):
        table.add_row(str(number), *(f"{value:.3f}" for value in place.values()))
    return table


def _places(place: dict[str, float]) -> str:
    return "(" + ", ".join(f"{value:.3f}" for value in place.values()) + ")"
