"""Random values of the contract, for property tests."""

import string
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from stoop_schemas import event as events
from stoop_schemas.chat import ImagePart, ImageURL, Message, Role, TextPart
from stoop_schemas.event import Event
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import MODEL_PATTERN, Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import (
    ADAPTER_PATTERN,
    Box,
    CaptionLength,
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
from stoop_schemas.state import TERMINAL
from stoop_schemas.transcript import Timestamps, Transcript, TranscriptSegment, TranscriptWord

__all__ = ["any_events", "any_jobs", "any_json", "any_results"]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(string.ascii_letters + string.digits + "._:-", min_size=1, max_size=128)
lanes = st.text(string.ascii_letters + string.digits + "._:-", min_size=1, max_size=63)
models = st.from_regex(MODEL_PATTERN, fullmatch=True).filter(lambda name: name != "quarantine")
fractions = st.floats(0, 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(text, any_json, max_size=2)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, ...]:
    (x_min, x_max), (y_min, y_max) = (sorted(draw(st.tuples(fractions, fractions))) for _ in range(2))
    return (x_min, y_min, x_max, y_max)


settings = st.builds(
    Settings,
    temperature=maybe(st.floats(0, 10)),
    top_p=maybe(fractions),
    max_tokens=maybe(st.integers(1, 1 << 20)),
    max_objects=maybe(st.integers(1, 1 << 16)),
    seed=maybe(st.integers(0, (1 << 63) - 1)),
    top_k=maybe(st.integers(0, 1 << 20)),
    stop=maybe(st.lists(text.filter(len), max_size=3)),
    presence_penalty=maybe(st.floats(-2, 2)),
    frequency_penalty=maybe(st.floats(-2, 2)),
    adapter=maybe(st.from_regex(ADAPTER_PATTERN, fullmatch=True)),
)


images = text.filter(len).map("s3://photos/".__add__)
parts = st.builds(TextPart, text) | st.builds(ImagePart, st.builds(ImageURL, images))
messages = st.builds(Message, st.sampled_from(Role), text | st.lists(parts, max_size=3))
chats = st.builds(
    lambda before, last: [*before, Message(Role.USER, last)], st.lists(messages, max_size=3), text | st.lists(parts)
)


@st.composite
def any_jobs(draw: st.DrawFn) -> Job:
    """Jobs that pass `check`."""
    skill = draw(st.sampled_from(Skill))
    chats_on = skill is Skill.CHAT
    embeds, ranks = skill is Skill.EMBED, skill is Skill.RERANK
    hears = skill in (Skill.TRANSCRIBE, Skill.TRANSLATE)
    has_image = not (chats_on or embeds or ranks or hears)
    refs = draw(maybe(st.lists(st.tuples(fractions, fractions) | boxes(), max_size=3)))
    eye = draw(st.tuples(fractions, fractions))
    return Job(
        id=draw(names),
        custom_id=draw(maybe(text.filter(len))),
        skill=skill,
        image=draw(images) if has_image else None,
        messages=draw(chats) if chats_on else None,
        date=draw(maybe(st.dates().map(str))) if chats_on else None,
        input=draw(st.lists(text, min_size=1, max_size=3)) if embeds else None,
        prompt_name=draw(maybe(text.filter(len))) if embeds else None,
        dimensions=draw(maybe(st.integers(1, 1 << 16))) if embeds else None,
        kinds=draw(maybe(st.lists(st.sampled_from(VectorKind), min_size=1, unique=True))) if embeds else None,
        query=draw(text.filter(len)) if ranks else None,
        documents=draw(st.lists(text, min_size=1, max_size=3)) if ranks else None,
        truncate=draw(st.booleans()),
        audio=draw(images) if hears else None,
        language=draw(maybe(st.sampled_from(["en", "yue"]))) if hears else None,
        prompt=draw(maybe(text)) if hears else None,
        timestamps=draw(st.sampled_from(Timestamps)),
        vad=draw(st.booleans()),
        parallel=draw(st.booleans()),
        question=draw(text.filter(len)) if skill is Skill.QUERY else draw(maybe(text)),
        object=draw(text.filter(len)) if skill in (Skill.DETECT, Skill.POINT) else draw(maybe(text)),
        length=draw(st.sampled_from(CaptionLength)),
        reasoning=draw(st.booleans()),
        spatial_refs=[eye] if skill is Skill.GAZE else refs if skill in (Skill.QUERY, Skill.POINT) else None,
        settings=draw(settings),
        stream=draw(st.booleans()),
        lane=draw(lanes),
        deadline=draw(maybe(st.integers(1, (1 << 53) - 1))),
        max_attempts=draw(maybe(st.integers(1, 100))),
        idempotency_key=draw(maybe(text.filter(len))),
        tenant=draw(maybe(names)),
        metadata=draw(maybe(metadata)),
        traceparent=draw(maybe(text.filter(len))),
        model=draw(maybe(models)),
    )


failures = st.builds(Failure, st.sampled_from(FailureCode), text, st.booleans())
places = st.builds(Point, numbers, numbers)
groundings = st.builds(Grounding, st.integers(0, 99), st.integers(0, 99), st.lists(st.tuples(numbers, numbers)))
segments = st.builds(
    TranscriptSegment,
    *(st.integers(0, 99), st.integers(0, 1 << 20), numbers, numbers, text, st.lists(st.integers(0, 99), max_size=2)),
    *(numbers, numbers, numbers, numbers),
)
words = st.lists(st.builds(TranscriptWord, text, numbers, numbers, fractions), max_size=2)
outputs = st.builds(
    Output,
    answer=maybe(text),
    reasoning=maybe(st.builds(Reasoning, text, st.lists(groundings, max_size=2))),
    caption=maybe(text),
    objects=maybe(st.lists(st.builds(Box, numbers, numbers, numbers, numbers), max_size=2)),
    points=maybe(st.lists(places, max_size=2)),
    gaze=st.just(UNSET) | maybe(places),
    embeddings=maybe(st.lists(text, max_size=2)),
    sparse=maybe(st.lists(st.builds(SparseVector, st.lists(st.integers(0, 99)), st.lists(numbers)), max_size=2)),
    colbert=maybe(st.lists(st.builds(TokenVectors, st.integers(0, 99), text), max_size=2)),
    scores=maybe(st.lists(numbers, max_size=3)),
    transcript=maybe(st.builds(Transcript, text, text, numbers, st.lists(segments, max_size=2), maybe(words))),
)
any_results: st.SearchStrategy[Result] = st.builds(
    Result,
    v=st.just(1),
    id=names,
    status=st.sampled_from(sorted(TERMINAL)),
    skill=maybe(st.sampled_from(Skill)),
    output=maybe(outputs),
    failure=maybe(failures),
    finish_reason=maybe(st.sampled_from(["stop", "length"])),
    metrics=st.builds(Metrics, input_tokens=st.integers(0, 1 << 20), queue_time_ms=st.floats(0, 1e9)),
    attempt=st.integers(1, 100),
    worker=maybe(names),
    model=maybe(text),
    custom_id=maybe(text),
    metadata=maybe(metadata),
)

numbered = {"v": st.just(1), "id": names, "seq": st.integers(0, 1 << 40), "attempt": st.integers(0, 100)}
any_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.QueuedEvent, **numbered),
    st.builds(events.StartedEvent, **numbered),
    st.builds(events.RestartedEvent, **numbered),
    st.builds(events.DeltaEvent, text=text, **numbered),
    st.builds(events.ReasoningEvent, text=text, **numbered),
    st.builds(events.SegmentEvent, segment=segments, words=maybe(words), **numbered),
    st.builds(events.ObjectEvent, object=st.dictionaries(text, numbers, max_size=4), **numbered),
    st.builds(events.FinishedEvent, result=any_results, **numbered),
    st.builds(events.FailedEvent, failure=failures, **numbered),
    st.builds(events.CancelledEvent, **numbered),
    st.builds(events.ExpiredEvent, **numbered),
)
