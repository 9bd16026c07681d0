"""Converts the wire's values to the engine's and back, in pure functions; no other module knows both."""

import base64
import dataclasses
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from stoop_schemas import event as events
from stoop_schemas.chat import Answer, ImagePart, Message
from stoop_schemas.failure import Failure
from stoop_schemas.job import Job
from stoop_schemas.response_format import JsonObjectFormat, JsonSchemaFormat
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import (
    Box,
    Grounding,
    Output,
    Point,
    Reasoning,
    Settings,
    Skill,
    SparseVector,
    TokenVectors,
    VectorKind,
)
from stoop_schemas.skills import SkillSpec, spec_of
from stoop_schemas.state import State
from stoop_schemas.transcript import Timestamps, Transcript, TranscriptSegment, TranscriptWord
from stoop_worker.audio import Cutting
from stoop_worker.engine import request as engine
from stoop_worker.jobs.pipelines import TEMPERATURES, Passage, Transcription

__all__ = [
    "Timings",
    "completed",
    "cutting_of",
    "ended",
    "temperatures_of",
    "to_event",
    "to_request",
    "to_segment",
    "to_segment_event",
    "to_speech_request",
    "transcribed",
]

_SPEECH = engine.Sampling(temperature=0.0, top_p=1.0, max_tokens=224)


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """The times that a job spent before the engine received it, in milliseconds."""

    queue_ms: float = 0.0
    fetch_ms: float = 0.0
    image_ms: float = 0.0


def to_request(
    job: Job, media: Sequence[engine.Media], defaults: engine.Sampling, *, priority: int = 0
) -> engine.Request:
    """Build the engine's request from a job; settings that it omits take the defaults."""
    settings: dict[str, Any] = {
        field.name: tuple(value) if isinstance(value, list) else value
        for field in dataclasses.fields(engine.Sampling)
        if (value := getattr(job.settings, field.name, None)) is not None
    }
    settings["grammar"] = _grammar(job.settings)
    return engine.Request(
        id=job.id,
        task=_task(job),
        media=tuple(media),
        sampling=dataclasses.replace(defaults, **settings),
        priority=priority,
        adapter=job.settings.adapter,
        stream=job.stream and job.audio is None,  # a recording streams segments, which the front makes of windows
    )


def _grammar(settings: Settings) -> engine.Grammar | None:
    match settings.response_format:
        case JsonObjectFormat():
            return engine.Grammar(schema='{"type": "object"}')
        case JsonSchemaFormat(json_schema=given):
            return engine.Grammar(schema=msgspec.json.encode(given.schema).decode())
    return None if settings.regex is None else engine.Grammar(regex=settings.regex)


def to_speech_request(job: Job, *, priority: int = 0) -> engine.Request:
    """Build the request that every window of a recording copies. A window has at most 224 tokens."""
    return to_request(job, (), _SPEECH, priority=priority)


def temperatures_of(job: Job) -> tuple[float, ...]:
    """Return the temperatures to try: the job's own alone, if it names one."""
    return TEMPERATURES if job.settings.temperature is None else (job.settings.temperature,)


def cutting_of(job: Job) -> Cutting:
    """Return the rule for the parts of the recording that the job asks to transcribe."""
    return Cutting(speech_only=job.vad, in_windows=job.parallel)


def _task(job: Job) -> engine.Task:
    spec = spec_of(job.skill)
    prompt = spec.prompt_for(msgspec.structs.asdict(job))
    refs = tuple(tuple(ref) for ref in job.spatial_refs or ())
    match spec.runs or spec.name:
        case Skill.QUERY:
            return engine.Query(prompt or job.question or "", reasoning=job.reasoning, spatial_refs=refs)
        case Skill.CAPTION:
            return engine.Caption(job.length.value)
        case Skill.DETECT:
            return engine.Detect(prompt or job.object or "")
        case Skill.POINT:
            return engine.Point(prompt or job.object or "", refs)
        case Skill.CHAT:
            today = None if job.date is None else date.fromisoformat(job.date)
            return engine.Chat(tuple(map(_message, job.messages or ())), today)
        case Skill.GAZE:
            x, y = (job.spatial_refs or [()])[0]
            return engine.Gaze((x, y))
        case Skill.EMBED:
            return engine.Embed(tuple(job.input or ()), job.prompt_name, job.dimensions, job.truncate, _kinds(job))
        case Skill.RERANK:
            return engine.Rerank(job.query or "", tuple(job.documents or ()), job.truncate)
        case Skill.TRANSCRIBE | Skill.TRANSLATE:
            return engine.Transcribe(
                language=job.language,
                translate=Skill.TRANSLATE in (spec.name, spec.runs),
                prompt=job.prompt,
                timestamps=job.timestamps is not Timestamps.NONE,
                words=job.timestamps is Timestamps.WORD,
            )
    raise AssertionError(f"{job.skill} runs no skill of the engine")


def _kinds(job: Job) -> tuple[engine.VectorKind, ...]:
    """Return the kinds in one order, so that equal texts of several jobs are one text to the engine."""
    wanted = job.kinds or [VectorKind.DENSE]
    return tuple(engine.VectorKind(kind.value) for kind in VectorKind if kind in wanted)


def _message(message: Message) -> engine.Message:
    content = message.content
    if isinstance(content, str):
        return engine.Message(message.role.value, (content,))
    parts = (engine.Part.IMAGE if isinstance(part, ImagePart) else part.text for part in content)
    return engine.Message(message.role.value, tuple(parts))


def to_event(output: engine.Partial, *, seq: int, attempt: int) -> events.Event:
    """Build the event with this number from one output."""
    match output:
        case engine.TextDelta(id=job_id, text=text):
            return events.DeltaEvent(id=job_id, seq=seq, attempt=attempt, text=text)
        case engine.ReasoningDelta(id=job_id, text=text):
            return events.ReasoningEvent(id=job_id, seq=seq, attempt=attempt, text=text)
        case engine.BoxFound() | engine.PointFound():
            coordinates = {name: value for name, value in dataclasses.asdict(output).items() if name != "id"}
            return events.ObjectEvent(id=output.id, seq=seq, attempt=attempt, object=coordinates)


def completed(job: Job, finished: engine.Finished, timings: Timings) -> Result:
    """Build the result of an answered job (without worker and attempt, which the publisher adds)."""
    return _completed(job, _output(spec_of(job.skill), finished), finished, timings)


def transcribed(job: Job, transcription: Transcription, timings: Timings) -> Result:
    """Build the result of a recording (without worker and attempt, which the publisher adds)."""
    timed = job.timestamps is Timestamps.WORD
    transcript = Transcript(
        text=transcription.text,
        language=transcription.language,
        duration=_microseconds(transcription.duration),
        segments=[_segment(passage) for passage in transcription.passages],
        words=[word for passage in transcription.passages for word in _words(passage)] if timed else None,
    )
    finished = engine.Finished(job.id, transcription.reason, transcription.usage)
    return _completed(job, Output(transcript=transcript), finished, timings)


def to_segment_event(job: Job, passage: Passage, *, seq: int, attempt: int) -> events.Event:
    """Build the event with this number from one passage of a recording."""
    words = _words(passage) if job.timestamps is Timestamps.WORD else None
    return events.SegmentEvent(id=job.id, seq=seq, attempt=attempt, segment=_segment(passage), words=words)


def to_segment(job: Job, passage: Passage) -> dict[str, Any]:
    """Return a passage as the client's stream of segments has it, with its `words` if the job asks for them."""
    segment: dict[str, Any] = msgspec.to_builtins(_segment(passage))
    return segment | ({"words": msgspec.to_builtins(_words(passage))} if job.timestamps is Timestamps.WORD else {})


def _segment(passage: Passage) -> TranscriptSegment:
    return TranscriptSegment(
        id=passage.number,
        seek=passage.seek,
        start=passage.segment.start,
        end=passage.segment.end,
        text=passage.segment.text,
        tokens=list(passage.segment.tokens),
        temperature=passage.temperature,
        avg_logprob=passage.window.average_logprob,
        compression_ratio=passage.window.compression_ratio,
        no_speech_prob=passage.window.no_speech,
    )


def _words(passage: Passage) -> list[TranscriptWord]:
    return [TranscriptWord(word.word, word.start, word.end, word.probability) for word in passage.words]


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


def _output(spec: SkillSpec, finished: engine.Finished) -> Output:
    match spec.output:
        case "objects":
            output = Output(objects=[Box(box.x_min, box.y_min, box.x_max, box.y_max) for box in finished.boxes])
        case "points":
            output = Output(points=[Point(point.x, point.y) for point in finished.points])
        case "gaze":
            output = Output(gaze=next((Point(point.x, point.y) for point in finished.points), None))
        case "caption":
            output = Output(caption=finished.text)
        case "message":
            output = Output(message=Answer(finished.text))
        case "embeddings":
            output = _vectors(finished)
        case "scores":
            output = Output(scores=list(finished.scores))
        case _:
            output = Output(answer=finished.text, reasoning=_reasoning(finished))
    return output


def _completed(job: Job, output: Output, finished: engine.Finished, timings: Timings) -> Result:
    change = spec_of(job.skill).result
    return Result(
        id=job.id,
        status=State.COMPLETED,
        skill=job.skill,
        output=output if change is None else change(output),
        finish_reason=finished.reason.value,
        metrics=_metrics(finished.usage, timings),
        custom_id=job.custom_id,
        metadata=job.metadata,
    )


def _vectors(finished: engine.Finished) -> Output:
    others_alone = bool(finished.sparse or finished.colbert) and not finished.vectors
    return Output(
        embeddings=None if others_alone else [_base64(vector) for vector in finished.vectors],
        sparse=[SparseVector(list(each.ids), list(each.weights)) for each in finished.sparse] or None,
        colbert=[TokenVectors(each.count, _base64(each.values)) for each in finished.colbert] or None,
    )


def _base64(packed: bytes) -> str:
    return base64.b64encode(packed).decode()


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
        queue_time_ms=_microseconds(timings.queue_ms),
        fetch_time_ms=_microseconds(timings.fetch_ms),
        image_time_ms=_microseconds(timings.image_ms),
        prefill_time_ms=_microseconds(usage.prefill_time_ms),
        decode_time_ms=_microseconds(usage.decode_time_ms),
        ttft_ms=_microseconds(usage.ttft_ms),
    )


def _microseconds(milliseconds: float) -> float:
    """Return the time to a thousandth, because further digits mean nothing."""
    return round(milliseconds, 3)
