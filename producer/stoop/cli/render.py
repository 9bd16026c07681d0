"""Prints answers, events and errors for a person or a program. Answers go to stdout, all else to stderr.

A model's text is printed literally: it controls neither the terminal nor the library that prints it.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table

from stoop.errors import JobFailed, StoopError, TimedOut
from stoop.short_answer import place_text, vector_text, weights_text
from stoop.subtitles import cue
from stoop.terminal import counted, legible, one_line, open_console
from stoop_schemas.event import DeltaEvent, Event, ObjectEvent, ReasoningEvent, RestartedEvent, SegmentEvent
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill

__all__ = [
    "print_aside",
    "print_error",
    "print_result",
    "print_stream",
    "print_submitted",
]


def print_result(result: Result, *, as_json: bool) -> None:
    """Print the answer: text as it is, boxes and points as a table; as JSON the result of the wire, on one line."""
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    out = open_console()
    output = msgspec.to_builtins(result.output)
    if "reasoning" in output:
        _write(out, f"{output['reasoning']['text']}\n\n", "dim")
    for name in ("answer", "caption"):
        if name in output:
            _write(out, f"{output[name]}\n")
    if "message" in output:
        _write(out, f"{output['message']['content']}\n")
    if "transcript" in output:
        _write(out, f"{output['transcript']['text']}\n")
    for name in ("objects", "points"):
        if name in output:
            out.print(_table(name, output[name]) if output[name] else f"no {name} found")
    if "gaze" in output:
        _write(out, f"looks at {place_text(output['gaze'])}\n" if output["gaze"] else "looks at nothing in the image\n")
    _write(out, _vectors(output.get("embeddings", [])) + _ranking(output.get("scores", [])))
    _write(out, _weights(output.get("sparse", [])) + _token_vectors(output.get("colbert", [])))
    _print_footer(result)


def print_stream(events: Iterable[Event]) -> None:
    """Print events as they arrive: text on one line, each box, point or segment on its own line.

    An empty line separates the reasoning from the answer.
    """
    out, aside = open_console(), open_console(stderr=True)
    reasoned = mid_line = False
    for event in events:
        if isinstance(event, DeltaEvent):
            _write(out, f"\n\n{event.text}" if reasoned else event.text)
            reasoned, mid_line = False, True
        elif isinstance(event, ReasoningEvent):
            _write(out, event.text, "dim")
            reasoned = mid_line = True
        elif isinstance(event, ObjectEvent):
            _write(out, f"{place_text(event.object)}\n")
        elif isinstance(event, SegmentEvent):
            _write(out, cue(event.segment))
        elif isinstance(event, RestartedEvent):
            if mid_line:
                out.print()
            reasoned = mid_line = False
            aside.print("(the job runs again: ignore the output above this line)", style="yellow")
    if mid_line:
        out.print()


def print_error(error: StoopError, *, exit_code: int, as_json: bool) -> None:
    """Print the error and its remedy: one line on stderr, or one JSON object on stdout."""
    message = str(error)
    if isinstance(error, TimedOut) and not error.cancelled:
        message = f"{error.facts} `stoop result {error.job_id}` waits again, `stoop cancel {error.job_id}` ends it"
    if not as_json:
        aside = open_console(stderr=True)
        _write(aside, "error:", "red")
        _write(aside, f" {message}\n")
        return
    fields: dict[str, Any] = {
        "error": {"kind": type(error).__name__, "message": message, "exit_code": exit_code},
    }
    if isinstance(error, JobFailed):
        fields["result"] = msgspec.to_builtins(error.result)
    print(json.dumps(fields, ensure_ascii=False))


def print_submitted(job_id: str, *, as_json: bool) -> None:
    """Print the id of a job that this command does not wait for."""
    print(json.dumps({"id": job_id}) if as_json else one_line(job_id))


def print_aside(text: str) -> None:
    """Print a line on stderr."""
    _write(open_console(stderr=True), f"{text}\n", "yellow")


def _write(out: Console, text: str, style: str = "") -> None:
    """Write the text literally: no markup, no emoji codes, no wrapping; `style` applies on a terminal only."""
    out.print(Segments([Segment(legible(text), Style.parse(style))]), crop=False)


def _print_footer(result: Result) -> None:
    spent = result.metrics
    run_ms = spent.fetch_time_ms + spent.image_time_ms + spent.prefill_time_ms + spent.decode_time_ms
    cut = ", cut at the limit" if result.finish_reason == "length" else ""
    numbers = result.skill in (Skill.EMBED, Skill.RERANK)
    tokens = f"{counted(spent.input_tokens, 'token')} read" if numbers else counted(spent.output_tokens, "token")
    _write(
        open_console(stderr=True),
        f"{tokens}{cut} · queued {spent.queue_time_ms:.0f} ms, run {run_ms:.0f} ms"
        f" · {result.model or 'model unknown'}\n",
        "dim",
    )


def _vectors(packed: list[str]) -> str:
    """Return one line per vector."""
    return "".join(f"{number}: {vector_text(vector)}\n" for number, vector in enumerate(packed, start=1))


def _weights(found: list[dict[str, Any]]) -> str:
    """Return one line per text: its token ids with the largest weights."""
    return "".join(f"{number}: {weights_text(**each)}\n" for number, each in enumerate(found, start=1))


def _token_vectors(found: list[dict[str, Any]]) -> str:
    """Return one line per text: the number of its tokens' vectors."""
    return "".join(
        f"{number}: {counted(each['count'], 'token vector')}\n" for number, each in enumerate(found, start=1)
    )


def _ranking(scores: list[float]) -> str:
    """Return one line per document, the best first: its score and its number."""
    ranked = sorted(enumerate(scores, start=1), key=lambda each: -each[1])
    return "".join(f"{score:9.4f}  document {number}\n" for number, score in ranked)


def _table(name: str, places: list[dict[str, float]]) -> Table:
    table = Table("#", *places[0], title=counted(len(places), name.removesuffix("s")), title_justify="left")
    for number, place in enumerate(places, start=1):
        table.add_row(str(number), *(f"{value:.3f}" for value in place.values()))
    return table
