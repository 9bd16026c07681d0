"""Between the wire's values and the engine's: pure functions, the only place that knows both."""

import dataclasses

from schemas import event as events
from schemas.failure import Failure
from schemas.job import Job
from schemas.result import Metrics, Result
from schemas.skill import Box, Grounding, Output, Point, Reasoning, Skill
from schemas.state import State
from worker.engine import request as engine
from worker.images import Crops, Image

__all__ = ["Timings", "completed", "ended", "to_event", "to_request"]


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """What a job spent before the engine had it, in milliseconds."""

    queue_ms: float = 0.0
    fetch_ms: float = 0.0
    image_ms: float = 0.0


def to_request(job: Job, image: Crops | Image | None, defaults: engine.Sampling) -> engine.Request:
    """Say a job in the engine's words; what its settings leave out takes the defaults."""
    settings = {
        field.name: value
        for field in dataclasses.fields(engine.Sampling)
        if (value := getattr(job.settings, field.name)) is not None
    }
    return engine.Request(
        id=job.id,
        task=_task(job),
        image=image,
        sampling=dataclasses.replace(defaults, **settings),
    )


def _task(job: Job) -> engine.Task:
    match job.skill:
        case Skill.QUERY:
            refs = tuple(tuple(ref) for ref in job.spatial_refs or ())
            return engine.Query(job.question or "", reasoning=job.reasoning, spatial_refs=refs)
        case Skill.CAPTION:
            return engine.Caption(job.length.value)
        case Skill.DETECT:
            return engine.Detect(job.object or "")
        case Skill.POINT:
            return engine.Point(job.object or "")


def to_event(output: engine.Partial, *, seq: int, attempt: int) -> events.Event:
    """Say one output as the event of this number."""
    match output:
        case engine.TextDelta(id=job_id, text=text):
            return events.DeltaEvent(id=job_id, seq=seq, attempt=attempt, text=text)
        case engine.ReasoningDelta(id=job_id, text=text):
            return events.ReasoningEvent(id=job_id, seq=seq, attempt=attempt, text=text)
        case engine.BoxFound() | engine.PointFound():
            place = {name: value for name, value in dataclasses.asdict(output).items() if name != "id"}
            return events.ObjectEvent(id=output.id, seq=seq, attempt=attempt, object=place)


def completed(job: Job, finished: engine.Finished, timings: Timings) -> Result:
    """Build the result of a job that has its answer (without worker and attempt, which the publisher adds)."""
    return Result(
        id=job.id,
        status=State.COMPLETED,
        skill=job.skill,
        output=_output(job.skill, finished),
        finish_reason=finished.reason.value,
        metrics=_metrics(finished.usage, timings),
        custom_id=job.custom_id,
        metadata=job.metadata,
    )


def ended(job_id: str, job: Job | None, status: State, failure: Failure | None) -> Result:
    """Build the result of a job that ends without an answer; `job` is None when it could not be read."""
    return Result(
        id=job_id,
        status=status,
        skill=job.skill if job else None,
        failure=failure,
        custom_id=job.custom_id if job else None,
        metadata=job.metadata if job else None,
    )


def _output(skill: Skill, finished: engine.Finished) -> Output:
    match skill:
        case Skill.QUERY:
            return Output(answer=finished.text, reasoning=_reasoning(finished))
        case Skill.CAPTION:
            return Output(caption=finished.text)
        case Skill.DETECT:
            return Output(objects=[Box(box.x_min, box.y_min, box.x_max, box.y_max) for box in finished.boxes])
        case Skill.POINT:
            return Output(points=[Point(point.x, point.y) for point in finished.points])


def _reasoning(finished: engine.Finished) -> Reasoning | None:
    if finished.reasoning is None:
        return None
    spans = [Grounding(span.start, span.end, list(span.points)) for span in finished.grounding]
    return Reasoning(text=finished.reasoning, grounding=spans)


def _metrics(usage: engine.Usage, timings: Timings) -> Metrics:
    return Metrics(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        queue_time_ms=timings.queue_ms,
        fetch_time_ms=timings.fetch_ms,
        image_time_ms=timings.image_ms,
        prefill_time_ms=usage.prefill_time_ms,
        decode_time_ms=usage.decode_time_ms,
        ttft_ms=usage.ttft_ms,
    )
