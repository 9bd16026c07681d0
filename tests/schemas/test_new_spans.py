"""A trace is chosen before its span is made; the choice is the one that OpenTelemetry makes."""

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NoOpTracerProvider, SpanKind

from stoop_schemas.new_spans import NewSpans, current_span, span_traceparent
from stoop_schemas.traceparent import is_traceparent

TRACES = 4000
SENT = f"00-{'a' * 32}-{'b' * 16}-"


class MisdescribedSampler(Sampler):
    """Keeps every trace, and describes itself as a sampler that keeps none."""

    def should_sample(self, *given: Any, **more: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*given, **more)

    def get_description(self) -> str:
        return ParentBased(ALWAYS_OFF).get_description()


def new_spans(sampler: Sampler, **fields: Any) -> NewSpans:
    return NewSpans(TracerProvider(sampler, shutdown_on_exit=False, **fields), "test")


def context_of(spans: NewSpans, parent: str | None = None) -> tuple[str, bool]:
    """Return the context that is passed on, and whether it has a span."""
    chosen = spans.choose(parent)
    if isinstance(chosen, str):
        return chosen, False
    carrier = {"traceparent": parent} if parent else {}
    with current_span(chosen, "a", SpanKind.SERVER, carrier, {}) as span:
        return str(span_traceparent(span)), span.is_recording()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_the_configured_share_of_new_traces_is_sampled(share: float) -> None:
    spans = new_spans(ParentBased(TraceIdRatioBased(share)))
    found = [context_of(spans) for _ in range(TRACES)]
    kept = sum(recorded for _, recorded in found)
    assert abs(kept - share * TRACES) <= 6 * (share * (1 - share) * TRACES) ** 0.5
    assert all(is_traceparent(text) and int(text[-2:], 16) & 1 == recorded for text, recorded in found)
    assert len({text[:52] for text, _ in found}) == TRACES


def test_a_tracer_is_not_asked_in_vain() -> None:
    spans = new_spans(ParentBased(TraceIdRatioBased(0.1)))
    asked = [chosen for _ in range(TRACES) if not isinstance(chosen := spans.choose(None), str)]
    assert asked and all(tracer.start_span("a").is_recording() for tracer in asked)


def test_spans_inside_a_dropped_trace_are_dropped_and_spans_after_it_are_not() -> None:
    provider = TracerProvider(ParentBased(TraceIdRatioBased(0.5)), shutdown_on_exit=False)
    spans, library = NewSpans(provider, "test"), provider.get_tracer("library")
    dropped = [chosen for _ in range(200) if isinstance(chosen := spans.choose(None), str)]
    for traceparent in dropped:
        with spans.dropping(traceparent):
            assert spans.current() == traceparent
            with spans.dropping(traceparent):
                assert not library.start_span("inner").is_recording()
            assert not library.start_span("inner").is_recording()
        assert spans.current() is None
    assert any(library.start_span("own").is_recording() for _ in dropped)


@pytest.mark.parametrize("flags", ["00", "02", "01", "03"])
def test_the_senders_choice_is_followed(flags: str) -> None:
    text, recorded = context_of(new_spans(ParentBased(TraceIdRatioBased(0.5))), SENT + flags)
    assert text.split("-")[1] == "a" * 32
    assert recorded == (flags in ("01", "03")) and (recorded or text == SENT + flags)


@pytest.mark.parametrize(
    "sampler", [ALWAYS_ON, MisdescribedSampler(), ParentBased(ALWAYS_OFF, remote_parent_not_sampled=ALWAYS_ON)]
)
def test_a_sampler_that_does_not_follow_the_sender_is_asked(sampler: Sampler) -> None:
    assert context_of(new_spans(sampler), f"{SENT}00")[1]


def test_the_programs_own_ids_stay_recognisable() -> None:
    class Dated(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return 0x1234 << 112 | super().generate_trace_id() & (1 << 96) - 1

    found = [context_of(new_spans(ParentBased(TraceIdRatioBased(0.5)), id_generator=Dated())) for _ in range(50)]
    assert {text[3:7] for text, recorded in found if recorded} == {"1234"}


def test_traces_that_are_turned_off_give_no_context() -> None:
    assert context_of(NewSpans(NoOpTracerProvider(), "test")) == ("None", False)
