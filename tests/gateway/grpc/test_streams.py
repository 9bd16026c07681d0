"""Many streams, callers that leave, and a gateway that ends."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import GRPC, SECONDS, GatewayProcess, StartGateway, running_jobs
from tests.gateway.grpc.client import MODEL, Stream, grpc_client, inputs, streaming, text_of

MANY = 64


def until(reached: Callable[[], object]) -> None:
    """Wait for it; the test's own time limit ends a wait in vain."""
    while not reached():
        time.sleep(0.02)


def running(deployment: Deployment) -> list[str]:
    return asyncio.run(running_jobs(deployment))


def query(question: str) -> list[object]:
    return inputs("query", question=question, stream=True)


@pytest.mark.timeout(120)
def test_many_streams_at_once(streaming_gateway: GatewayProcess, gate: Path) -> None:
    answer = "".join(words(6))
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(streaming(streaming_gateway.grpc)) for _ in range(MANY)]
        for index, stream in enumerate(streams):
            stream.ask(query(f"tell 6 until {gate}"), str(index))
        gate.touch()
        for index, stream in enumerate(streams):
            came = stream.until_final()
            assert {response.id for response, _ in came} == {str(index)}
            texts = [text for _, text in came if text is not None]
            assert "".join(text["chunk"] for text in texts) == texts[-1]["answer"] == answer


@pytest.mark.timeout(120)
def test_many_requests_on_one_stream(streaming_gateway: GatewayProcess, gate: Path) -> None:
    chunks: dict[str, str] = {str(index): "" for index in range(MANY)}
    with streaming(streaming_gateway.grpc) as stream:
        for each in chunks:
            stream.ask(query(f"tell 6 until {gate}"), each)
        gate.touch()
        ended = 0
        while ended < MANY:
            response, text = stream.next()
            chunks[response.id] += text["chunk"]
            ended += response.parameters["triton_final_response"].bool_param
    assert set(chunks.values()) == {"".join(words(6))}


def test_a_caller_that_leaves_cancels_its_jobs(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    """The jobs wait for a gate that stays shut: only a cancel ends them."""
    with grpc_client(streaming_gateway.grpc) as client:
        stream = Stream(client)
        for each in "abc":
            stream.ask(query(f"tell 4 until {gate}"), each)
        until(lambda: len(running(streaming_deployment)) == 3)
        client.stop_stream(cancel_requests=True)
        until(lambda: not running(streaming_deployment))
        call = client.async_infer(MODEL, inputs("query", question=f"tell 4 until {gate}"), lambda result, error: None)
        until(lambda: running(streaming_deployment))
        call.cancel()
        until(lambda: not running(streaming_deployment))
    assert {"CANCELLED"} <= {line["status"] for line in streaming_gateway.lines if line.get("method") == "gRPC"}


LEAVING = """
import os, signal, sys
from tests.gateway.grpc.client import inputs, streaming
with streaming(sys.argv[1]) as stream:
    stream.ask(inputs("query", question=sys.argv[2], stream=True))
    stream.next()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_dropped_connection_cancels_its_job(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, gate: Path
) -> None:
    command = [sys.executable, "-c", LEAVING, streaming_gateway.grpc, f"tell 4 until {gate}"]
    left = subprocess.run(command, env=streaming_deployment.variables, timeout=SECONDS)
    assert left.returncode == -signal.SIGKILL, "it died after the first piece"
    until(lambda: not running(streaming_deployment))


def end(gateway: GatewayProcess) -> subprocess.Popen[bytes]:
    process = gateway.server.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    return process


def test_a_stopping_gateway_finishes_its_answers_and_closes_streams_with_a_reason(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    """It has more than time enough, and ends once its last answer is out."""
    gateway = start_gateway(streaming_deployment, "--open", "--drain-seconds", str(2 * SECONDS), *GRPC)
    with grpc_client(gateway.grpc) as client, streaming(gateway.grpc) as stream, streaming(gateway.grpc) as idle:
        idle.ask(query("tell 1"))
        idle.until_final()
        stream.ask(query(f"tell 4 until {gate}"))
        assert stream.next()[1]["chunk"].startswith(words(4)[0])
        answers: list[tuple[object, object]] = []
        asked = inputs("query", question=f"tell 2 until {gate}")
        answer = client.async_infer(MODEL, asked, lambda result, error: answers.append((result, error)))
        until(lambda: len(running(streaming_deployment)) == 2)
        process = end(gateway)
        with pytest.raises(Exception, match=r"UNAVAILABLE.*server_shutting_down"):
            idle.next()
        gate.touch()
        until(lambda: answers)
        result, error = answers[0]
        assert answer is not None and error is None and text_of(result)["answer"] == "".join(words(2))
        assert stream.until_final()[-1][1]["answer"] == "".join(words(4))
        with pytest.raises(Exception, match=r"UNAVAILABLE.*server_shutting_down"):
            stream.next()
        assert process.wait(SECONDS) == 0


def test_a_stopping_gateway_ends_answers_that_take_too_long(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path
) -> None:
    """The gate stays shut."""
    gateway = start_gateway(streaming_deployment, "--open", "--drain-seconds", "2", *GRPC)
    with streaming(gateway.grpc) as stream:
        stream.ask(query(f"tell 4 until {gate}"))
        assert stream.next()[1]["chunk"].startswith(words(4)[0])
        process = end(gateway)
        with pytest.raises(Exception, match="server_shutting_down"):
            while stream.next():
                pass
        assert process.wait(SECONDS) == 0
    until(lambda: not running(streaming_deployment))
