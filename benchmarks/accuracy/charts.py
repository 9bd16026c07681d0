"""Measures relaxed accuracy on questions about charts, through the queue.

    python -m benchmarks.accuracy.charts chartqa/ --out chartqa-run
    python -m benchmarks.accuracy.charts test.parquet --model moondream3-preview --out run --window 64

The queue, its bucket and its workers are those of the client's STOOP_ variables. Every answer is written to
answers.jsonl at once: the same command goes on where it stopped. At the end: report.json and report.md, with the
models that answered.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from benchmarks.accuracy.charts_data import Row, read_rows
from benchmarks.accuracy.relaxed import is_right
from stoop import AsyncClient
from stoop.errors import ImageUnreadable, InvalidJob, JobFailed, StoopError
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["answer_rows", "main", "report"]

PROMPT: Final = (
    "Analyze the chart carefully, consider both visual features and data values, and provide a precise answer without "
    "any additional explanation or formatting. "
)
"""The words before each question in the published scores."""

_EVERY_SECONDS: Final = 5.0

_Keep = Callable[[Row, Result | StoopError], None]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        rows = list(read_rows(options.source))[: options.limit]
    except (OSError, ValueError) as error:
        sys.exit(f"{options.source} cannot be read: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(_run(rows, options))
    found = report(_done(options.out))
    (options.out / "report.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (options.out / "report.md").write_text(_markdown(found), encoding="utf-8")
    print(_markdown(found))


async def _run(rows: Sequence[Row], options: argparse.Namespace) -> None:
    values = {"job_model": options.model} if options.model else {}
    async with AsyncClient(**values) as client:
        await answer_rows(client, rows, options.out, prompt=options.prompt, window=options.window)


async def answer_rows(
    client: AsyncClient, rows: Sequence[Row], out: Path, *, prompt: str = PROMPT, window: int = 64
) -> None:
    """Ask the questions without an answer, and append each answer to out/answers.jsonl; failed rows are asked again."""
    done = {each["id"] for each in _done(out) if each["error"] is None}
    left = {row.id: row for row in rows if row.id not in done}
    progress = _Progress(len(left))
    with (out / "answers.jsonl").open("a", encoding="utf-8") as file:
        if file.tell():
            file.write("\n")  # a kill may have cut the last line short, and the next answer needs its own

        def keep(row: Row, outcome: Result | StoopError) -> None:
            _write(file, _scored(row, outcome))
            progress.count()

        async for job, outcome in client.gather(_jobs(client, left.values(), prompt, keep), window=window):
            assert job.custom_id is not None, "every job has its row's id"
            keep(left[job.custom_id], outcome)


async def _jobs(client: AsyncClient, rows: Iterable[Row], prompt: str, keep: _Keep) -> AsyncIterator[Job]:
    for row in rows:
        image = row.image if isinstance(row.image, bytes) else str(row.image)
        fields = {"question": f"{prompt}{row.question}", "reasoning": False, "custom_id": row.id}
        try:
            job = await client.prepare("query", image, settings={"temperature": 0.0}, **fields)
        except (ImageUnreadable, InvalidJob) as error:  # this row's fault; any other error stops the run
            keep(row, error)
        else:
            yield job


def _scored(row: Row, outcome: Result | StoopError) -> dict[str, Any]:
    scored: dict[str, Any] = {"id": row.id, "question": row.question, "answers": row.answers}
    if isinstance(outcome, Result):
        answer = outcome.output.answer if outcome.output is not None and outcome.output.answer is not None else ""
        right = is_right(answer, row.answers)
        return {**scored, "answer": answer, "right": right, "model": outcome.model, "error": None}
    kind = outcome.failure.code.value if isinstance(outcome, JobFailed) else type(outcome).__name__
    return {**scored, "answer": None, "right": False, "error": kind}


def _write(file: TextIO, scored: Mapping[str, Any]) -> None:
    file.write(json.dumps(scored) + "\n")
    file.flush()


def _done(out: Path) -> list[dict[str, Any]]:
    """Return the last line of each row; a line that a kill cut short is not an answer."""
    path, found = out / "answers.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            scored = json.loads(line)
        except ValueError:
            continue
        found[scored["id"]] = scored
    return list(found.values())


def report(scored: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts, accuracy of all rows and of the answered ones, the answers by model, and the failures by kind."""
    answered = [each for each in scored if each["error"] is None]
    right = sum(each["right"] for each in answered)
    return {
        "rows": len(scored),
        "answered": len(answered),
        "right": right,
        "accuracy": right / len(scored) if scored else 0.0,
        "accuracy_of_answered": right / len(answered) if answered else 0.0,
        "models": dict(Counter(each.get("model") or "unknown" for each in answered)),
        "errors": dict(Counter(each["error"] for each in scored if each["error"] is not None)),
    }


def _markdown(found: Mapping[str, Any]) -> str:
    lines = ["| rows | answered | right | relaxed accuracy | of the answered |", "|---|---|---|---|---|"]
    shares = f"{found['accuracy']:.1%} | {found['accuracy_of_answered']:.1%}"
    lines.append(f"| {found['rows']} | {found['answered']} | {found['right']} | {shares} |")
    lines += ["", *(f"- {count} answered by `{model}`" for model, count in found["models"].items())]
    lines += ["", *(f"- {count} × `{kind}`" for kind, count in found["errors"].items())] if found["errors"] else []
    return "\n".join(lines) + "\n"


class _Progress:
    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0
        self._began = self._shown = time.monotonic()

    def count(self) -> None:
        self._ended += 1
        now = time.monotonic()
        if now - self._shown >= _EVERY_SECONDS or self._ended == self._total:
            self._shown = now
            rate = self._ended / max(now - self._began, 1e-9)
            print(f"{self._ended} of {self._total}, {rate:.1f} a second", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with rows.jsonl, or a Parquet file")
    parser.add_argument("--out", type=Path, required=True, help="folder for the answers and the report")
    parser.add_argument("--model", help="short name of a model")
    parser.add_argument("--prompt", default=PROMPT, help="words before each question")
    parser.add_argument("--window", type=int, default=64, help="jobs in flight")
    parser.add_argument("--limit", type=int, help="ask only the first rows")
    return parser


if __name__ == "__main__":
    main()
