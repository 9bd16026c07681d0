"""One line of the output: a row's answer in `results-*.jsonl`, or why it has none in `errors.jsonl`."""

from typing import Any, Final, TypeVar

import msgspec

from stoop.bulk.row import Row
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State

__all__ = ["Line", "answered", "failed", "pack_line", "unanswered", "unpack_line"]

_T = TypeVar("_T")


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row that has ended. Either `output` or `failure` is there.

    `row` names the row in its source, `id` is the row's own id, or else that name. `image` is the image as the source
    has it. `job` is the id in the queue.
    """

    row: str
    id: str
    image: str | None = None
    skill: str | None = None
    question: str | None = None
    object: str | None = None
    length: str | None = None
    output: Output | None = None
    failure: Failure | None = None
    finish_reason: str | None = None
    metrics: Metrics | None = None
    model: str | None = None
    job: str | None = None
    metadata: dict[str, Any] | None = None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Line)


def answered(row: Row, job: Job, result: Result) -> list[Line]:
    """Make the lines of a job that has ended, whatever its status: one, or one for each member of a group.

    The metrics are on the first line alone, so that sums over the lines are right.
    """
    if result.status is not State.COMPLETED:
        return [unanswered(part, job, result) for part in row.parts]
    outputs = _outputs(result.output) if row.members else [result.output]
    if len(outputs) != len(row.parts):
        failure = Failure.of(FailureCode.INTERNAL, f"the worker gave {len(outputs)} answers to {len(row.parts)} texts")
        return [failed(part, failure, job) for part in row.parts]
    return [
        Line(
            **_facts(part, job),
            output=output,
            finish_reason=result.finish_reason,
            metrics=None if number else result.metrics,
            model=result.model,
        )
        for number, (part, output) in enumerate(zip(row.parts, outputs, strict=True))
    ]


def unanswered(row: Row, job: Job, result: Result) -> Line:
    """Make the line of a job that did not complete."""
    return failed(row, _failure(result), job)


def failed(row: Row, failure: Failure, job: Job | None = None) -> Line:
    """Make the line of a row that has no answer; without a `job` it never became one."""
    return Line(**_facts(row, job), failure=failure)


def pack_line(line: Line) -> bytes:
    """Return the line as JSON, with its newline."""
    return _ENCODER.encode(line) + b"\n"


def unpack_line(packed: bytes) -> Line | None:
    """Read a line; None if it is torn."""
    try:
        return _DECODER.decode(packed) if packed.endswith(b"\n") else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _facts(row: Row, job: Job | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"row": row.name, "id": row.name, "image": row.shown_image}
    if job is None:
        own = row.fields.get("custom_id")
        return facts | {"id": own if isinstance(own, str) else row.name}
    length = job.length.value if job.skill == Skill.CAPTION else None
    return facts | {
        "id": job.custom_id or row.fields.get("custom_id") or row.name,
        "skill": job.skill,
        "question": job.question,
        "object": job.object,
        "length": length,
        "job": job.id,
        "metadata": job.metadata,
    }


def _outputs(output: Output | None) -> list[Output]:
    """Return the answer to each text of a job."""
    found = output or Output()
    kinds = [each for each in (found.embeddings, found.sparse, found.colbert) if each is not None]
    if len(set(map(len, kinds))) != 1:
        return []
    return [
        Output(
            embeddings=_only(found.embeddings, number),
            sparse=_only(found.sparse, number),
            colbert=_only(found.colbert, number),
        )
        for number in range(len(kinds[0]))
    ]


def _only(values: list[_T] | None, number: int) -> list[_T] | None:
    return None if values is None else [values[number]]


def _failure(result: Result) -> Failure:
    if result.failure is not None:
        return result.failure
    if result.status is State.CANCELLED:
        return Failure.of(FailureCode.CANCELLED, "the job was cancelled")
    if result.status is State.EXPIRED:
        return Failure.of(FailureCode.DEADLINE_EXCEEDED, "the deadline passed before the answer")
    return Failure.of(FailureCode.INTERNAL, "the worker gave no reason")
