"""Readiness, the log, metrics and traces."""

import asyncio
import contextlib
import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from tests.examples.conftest import Deployment, new_deployment, streaming_worker
from tests.gateway.conftest import GRPC, SECONDS, StartGateway
from tests.gateway.grpc.client import MODEL, grpc_client, inputs, refused, streaming, text_of, triton
from tests.gateway.test_traces import CALLER, PRODUCER, SERVER, TRACE, collector, traced
from tests.support.otlp_collector import Collector

__all__ = ["collector", "traced"]

PLANTED = "plAnted"


@pytest.fixture
def workless(
    s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Deployment, ChildServer]]:
    """A queue that has never had a worker, and a worker to be started."""
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "redis") as redis:
        deployment = new_deployment(redis, s3)
        worker = streaming_worker(deployment, tmp_path)
        yield deployment, worker
        worker.end(signal.SIGKILL)


def test_a_server_is_ready_while_a_worker_lives(
    workless: tuple[Deployment, ChildServer], start_gateway: StartGateway
) -> None:
    deployment, worker = workless
    gateway = start_gateway(deployment, "--open", *GRPC)

    def states() -> tuple[bool, ...]:
        return client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL)

    with contextlib.closing(triton.InferenceServerClient(gateway.grpc)) as client:
        assert states() == (True, False, False)
        assert not client.is_model_ready("nothing") and not client.is_model_ready(MODEL, "2")
        assert refused(client.infer, MODEL, inputs("query", question="tell 1"))[0] == "NOT_FOUND"
        worker.start()
        while states() != (True, True, True):
            time.sleep(0.05)
        assert text_of(client.infer(MODEL, inputs("query", question="tell 1")))["answer"] == "word-0"
        about = client.get_server_metadata(as_json=True)
        config = client.get_model_config("streaming", as_json=True)["config"]
        metadata = client.get_model_metadata("streaming", as_json=True)
        assert about["name"] == "stoop" and config["model_transaction_policy"] == {"decoupled": True}
        assert [each["name"] for each in config["input"]] == [each["name"] for each in metadata["inputs"]]
        assert metadata["outputs"] == [{"name": "TEXT_OUTPUT", "datatype": "BYTES", "shape": ["1"]}]
        worker.end(signal.SIGKILL)
        while client.is_model_ready("streaming"):  # until its lease has run out
            time.sleep(0.05)
        index = client.get_model_repository_index(as_json=True)["models"]
        assert [(each["name"], each["state"]) for each in index] == [("streaming", "UNAVAILABLE")]


def test_calls_are_counted_and_logged_without_content(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    gateway = start_gateway(streaming_deployment, "--open", *GRPC)

    def scraped() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"{gateway.address}/metrics") as response:
            families = text_string_to_metric_families(response.read().decode())
        return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}

    with streaming(gateway.grpc) as stream:
        stream.ask(inputs("query", question=f"tell 2 until {gate}", stream=True), PLANTED)
        assert stream.next()
        assert scraped()["stoop_grpc_streams",] == 1
        gate.touch()
        stream.until_final()
        stream.ask(inputs("query", question=PLANTED), PLANTED, model=PLANTED)
        with pytest.raises(Exception, match="model_not_found"):
            stream.next()
        stream.client.infer(
            MODEL, inputs("query", question=PLANTED), headers={"x-request-id": "mine", "x-own": PLANTED}
        )
        stream.client.stop_stream()
    while (found := scraped())["stoop_grpc_streams",]:
        time.sleep(0.02)
    name = "stoop_grpc_requests_total"
    assert found[name, "ModelStreamInfer/request", "OK"] == found[name, "ModelStreamInfer/request", "NOT_FOUND"] == 1
    assert found[name, "ModelStreamInfer", "OK"] == found[name, "ModelInfer", "OK"] == 1
    assert found["stoop_grpc_request_seconds_count", "ModelInfer"] == 1
    [line] = [line for line in gateway.lines if line["request"] == "mine"]
    assert line.items() >= {"route": "ModelInfer", "status": "OK", "skill": "query", "tokens": 2}.items()
    assert PLANTED not in gateway.log and PLANTED not in json.dumps([list(each) for each in found])


def test_a_call_is_a_span_between_its_callers_and_the_queues(
    collector: Collector, traced: tuple[Deployment, ChildServer], start_gateway: StartGateway
) -> None:
    gateway = start_gateway(traced[0], "--open", *GRPC)
    with grpc_client(gateway.grpc) as client:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        client.infer(MODEL, inputs("query", question="tell 1"), headers=headers)

    async def exported() -> dict[str, object]:
        async with asyncio.timeout(SECONDS):
            spans = await collector.until(
                lambda spans: (
                    any(span.name == "process interactive" for span in spans if span.trace_id == TRACE)
                    and any(span.name.endswith("/ModelInfer") for span in spans)
                )
            )
        return {span.name: span for span in spans if span.trace_id == TRACE}

    spans = asyncio.run(exported())
    call, sent = spans["inference.GRPCInferenceService/ModelInfer"], spans["send interactive"]
    assert (call.kind, call.service, call.parent_id, call.failed) == (SERVER, "stoop-gateway", CALLER, False)
    assert call.attributes["rpc.system"] == "grpc" and "stoop.job" in call.attributes
    assert (sent.kind, sent.parent_id) == (PRODUCER, call.span_id)
