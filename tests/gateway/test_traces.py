"""Traces from the request through the queue to the end of the job, as a real collector receives them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoop.demo.child_server import ChildServer
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, StartGateway, http_client, running_jobs
from tests.support.otlp_collector import Collector, Exported, collecting

SERVER, PRODUCER, CONSUMER = 2, 4, 5  # kinds of spans in the protocol
TRACE, CALLER = "1" * 32, "2" * 16


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def traced(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Deployment, ChildServer]:
    """A queue and its worker, which export their traces; programs that start later do so too."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    deployment, worker = request.getfixturevalue("killable_worker")
    return deployment, worker


def has_ended(spans: list[Exported]) -> bool:
    names = [span.name for span in spans]
    return "POST /v1/query" in names and names.count("process interactive") == 2


async def test_a_killed_workers_job_is_one_trace_with_two_attempts(
    collector: Collector, traced: tuple[Deployment, ChildServer], start_gateway: StartGateway, gate: Path
) -> None:
    deployment, worker = traced
    gateway = start_gateway(deployment, "--open")
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        asked = {"question": f"tell 4 until {gate}"}
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        asking_task = asyncio.create_task(http.post("/v1/query", json=asked, headers=headers))
        while not await running_jobs(deployment):
            await asyncio.sleep(0.02)
        worker.end(signal.SIGKILL)
        gate.touch()
        worker.start()
        answered = await asking_task
        assert answered.status_code == 200, answered.text
        spans = await collector.until(has_ended)

    assert {span.trace_id for span in spans} == {TRACE}
    by_name = {span.name: span for span in spans}
    request, sent, queued = by_name["POST /v1/query"], by_name["send interactive"], by_name["queue"]
    assert (request.kind, request.service, request.parent_id) == (SERVER, "stoop-gateway", CALLER)
    assert request.attributes["http.route"] == "/v1/query" and not request.failed
    assert (sent.kind, sent.parent_id) == (PRODUCER, request.span_id)
    assert (queued.service, queued.parent_id) == ("stoop-worker", sent.span_id)

    lost, answered_run = sorted((one for one in spans if one.name == "process interactive"), key=lambda one: one.start)
    assert (lost.kind, answered_run.kind) == (CONSUMER, CONSUMER)
    assert lost.parent_id == answered_run.parent_id == sent.span_id
    assert [one.attributes["stoop.attempt"] for one in (lost, answered_run)] == [1, 2]
    assert lost.failed and lost.attributes["error.type"] == "worker_lost"
    assert not answered_run.failed and answered_run.attributes["stoop.outcome"] == "completed"
    assert lost.attributes["stoop.worker"] != answered_run.attributes["stoop.worker"]
    assert queued.start <= queued.end == lost.start <= lost.end <= answered_run.start

    inside = [span for span in spans if span.parent_id == answered_run.span_id]
    assert {span.name.split()[0] for span in inside} == {"generate_content", "settle"}
    assert all(answered_run.start <= span.start <= span.end <= answered_run.end for span in inside)
    [generate] = [span for span in inside if span.name.startswith("generate_content")]
    assert generate.attributes["gen_ai.usage.output_tokens"] == 1
    assert not any(secret in body for body in collector.received for secret in (b"tell 4", b"word-0"))


def run_without_variables(program: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True)


# a process of its own, in which OpenTelemetry is not installed
WITHOUT_PACKAGES = """
import asyncio, os, sys
sys.modules["opentelemetry"] = None
import stoop_worker.main, stoop.gateway.server
from stoop.client.sending import sending
from stoop.gateway.traces import RequestSpans, exporting_spans
from stoop_worker.jobs.publisher import Identity
from stoop_worker.tracing import running_spans

async def run():
    async with running_spans(Identity("w", "m"), "redis://127.0.0.1:1") as spans:
        assert spans is None

def serve(**variables):
    os.environ.update(variables)
    spans = RequestSpans()
    print("variables:", *variables.values())
    with exporting_spans(spans), spans.serving({"path": "/v1/query"}, {}), sending([]):
        asyncio.run(run())

serve()
serve(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_TRACES_EXPORTER="none")
serve(OTEL_TRACES_EXPORTER="otlp", OTEL_SDK_DISABLED="true")
serve(OTEL_SDK_DISABLED="false", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")
serve(OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
"""


def test_opentelemetry_is_needed_only_with_its_variables_and_its_absence_is_a_warning() -> None:
    done = run_without_variables(WITHOUT_PACKAGES)
    assert done.returncode == 0, done.stderr
    *quiet, installs, protocols = done.stdout.split("variables:")[1:]
    assert [len(text.splitlines()) for text in quiet] == [1, 1, 1]
    assert installs.count("pip install 'stoop[otel]'") == 2, "one from the gateway, one from the worker"
    assert protocols.count("set http/protobuf") == 2


# a process of its own, because a process has one provider of traces
SET_UP = """
import contextlib, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_tracer_provider
from stoop.client.sending import sending
from stoop.errors import QueueUnavailable
from stoop.gateway.traces import RequestSpans
from stoop_schemas.job import Job

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
set_tracer_provider(provider)
spans = RequestSpans()
spans.export_to(provider)
"""

FAILING = f"""{SET_UP}
with contextlib.suppress(QueueUnavailable), sending([Job(id="a", skill="query")]):
    raise QueueUnavailable("planted text")
with contextlib.suppress(OSError), spans.serving(dict(path="/", method="GET", scheme="http"), dict()):
    raise OSError("planted text")
print(*[span.to_json(indent=None) for span in exporter.get_finished_spans()], sep="\\n")
"""

DROPPED = f"""{SET_UP}
sent = "00-" + 32 * "a" + "-" + 16 * "b" + "-00"
scope = dict(path="/v1/query", method="POST", scheme="http")

def inner():
    "A span of an instrumented library."
    with provider.get_tracer("library").start_as_current_span("inner") as span:
        return span.get_span_context()

with spans.serving(scope, {{b"traceparent": sent.encode()}}) as span:
    assert span is None
    assert scope["state"]["traceparent"] == sent
    assert inner().trace_id == int(32 * "a", 16)
    with sending([Job(id="a", skill="query", traceparent=sent)]) as jobs:
        assert jobs[0].traceparent == sent
        inner()
    inner()
with spans.begin("call", dict(traceparent=sent), dict()) as begun:
    assert begun.traceparent == sent
    inner()
with sending([Job(id="a", skill="query", traceparent=sent)]):
    inner()
assert exporter.get_finished_spans() == ()
assert inner().trace_flags.sampled, "the dropped trace has ended"
exporter.clear()
b, c = Job(id="b", skill="query", traceparent=sent), Job(id="c", skill="query")
with sending([b, c]) as jobs:
    assert jobs[0].traceparent == sent
    assert int(jobs[1].traceparent[-2:], 16) & 1
[span] = exporter.get_finished_spans()
assert span.attributes["messaging.message.id"] == "c"
assert f"{{span.context.span_id:016x}}" in jobs[1].traceparent
with sending([c, b]) as jobs:
    assert jobs[0].traceparent[-2:] != "00"
    assert not inner().trace_flags.sampled, "the last job is dropped"
with sending([]) as jobs:
    assert jobs == []
"""

MALFORMED = f"""{SET_UP}
scope = dict(path="/v1/query", method="POST", scheme="http")
with spans.serving(scope, {{b"traceparent": b"not a context-00"}}) as span:
    assert span.is_recording()
    with sending([Job(id="a", skill="query", traceparent="garbage0")]) as jobs:
        assert f"{{span.context.trace_id:032x}}" in jobs[0].traceparent
sent, request = exporter.get_finished_spans()
assert sent.parent.span_id == request.context.span_id
assert f"{{sent.context.span_id:016x}}" in jobs[0].traceparent
"""


@pytest.mark.parametrize("program", [DROPPED, MALFORMED], ids=["dropped", "malformed"])
def test_an_unsampled_trace_continues_without_spans_and_a_malformed_context_is_ignored(
    program: str,
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    done = run_without_variables(program)
    assert done.returncode == 0, done.stderr


def test_the_spans_of_a_failed_send_and_a_failed_request_have_the_type_of_the_error_and_not_its_text() -> None:
    pytest.importorskip("opentelemetry.sdk")
    done = run_without_variables(FAILING)
    assert done.returncode == 0, done.stderr
    assert "planted" not in done.stdout
    sent, request = (json.loads(line) for line in done.stdout.splitlines())
    assert (sent["name"], request["name"]) == ("send interactive", "GET")
    assert [span["status"] for span in (sent, request)] == [{"status_code": "ERROR"}] * 2
    assert [span["attributes"]["error.type"] for span in (sent, request)] == ["QueueUnavailable", "OSError"]
