"""The choice agrees with the sampler, and asks it only about jobs that it may keep."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)

from stoop_schemas.codec import pack
from stoop_schemas.job import Job
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.spans.choice import SpanChoice
from tests.support.recording_broker import delivery

JOBS = 2000
SENT = f"00-{'a' * 32}-{'b' * 16}-"


class Counting(Sampler):
    """Counts the questions that a sampler gets."""

    def __init__(self, sampler: Sampler) -> None:
        self.asked = 0
        self._sampler = sampler

    def should_sample(self, *given: Any, **more: Any) -> SamplingResult:
        self.asked += 1
        return self._sampler.should_sample(*given, **more)

    def get_description(self) -> str:
        return self._sampler.get_description()


def arrived(number: int, traceparent: str | None = None) -> Delivery:
    job_id = f"job-{number}"
    return delivery(job_id, pack(Job(id=job_id, skill="query", question="traceparent?", traceparent=traceparent)))


def kept(choice: SpanChoice, given: Delivery) -> bool:
    parent = choice.parent(given, choice.traceparent(given), "process")
    assert parent is None or choice.may_keep(given), "a trace that is kept is never left out"
    return parent is not None


SAMPLERS: dict[str, Callable[[Sampler], Sampler]] = {
    "by the parent": ParentBased,
    "by the trace alone": lambda sampler: sampler,
    "another's": Counting,
}


@pytest.mark.parametrize("wrapped", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_a_share_of_the_jobs_without_a_context_is_kept(share: float, wrapped: Callable[[Sampler], Sampler]) -> None:
    choice = SpanChoice(wrapped(TraceIdRatioBased(share)))
    found = sum(kept(choice, arrived(number)) for number in range(JOBS))
    assert abs(found - share * JOBS) <= 5 * (share * (1 - share) * JOBS) ** 0.5
    assert found == sum(kept(choice, arrived(number)) for number in range(JOBS)), "each attempt is decided alike"


@pytest.mark.parametrize("flags", ["00", "01", "03"])
def test_the_senders_choice_is_followed(flags: str) -> None:
    choice = SpanChoice(ParentBased(TraceIdRatioBased(0.5)))
    given = arrived(1, SENT + flags)
    assert kept(choice, given) == choice.may_keep(given) == (flags != "00")


def test_a_sampler_that_does_not_follow_the_sender_is_asked() -> None:
    for sampler in (ALWAYS_ON, ParentBased(ALWAYS_OFF, remote_parent_not_sampled=ALWAYS_ON)):
        assert kept(SpanChoice(sampler), arrived(1, f"{SENT}00"))


def test_the_sampler_of_the_standard_variables_is_asked_about_few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
    choice = SpanChoice(TracerProvider(shutdown_on_exit=False).sampler)
    assert sum(choice.may_keep(arrived(number)) for number in range(JOBS)) < 0.03 * JOBS
    assert not any(choice.may_keep(arrived(number, f"{SENT}00")) for number in range(100))
    assert choice.may_keep(delivery("job", b"", celery=True)), "only its dialect can read it"
