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

from tests.examples.conftest import Town
from tests.examples.telling_child import words
from tests.gateway.conftest import GRPC, SECONDS, Begin, Serving, running_jobs
from tests.gateway.grpc.asked import MODEL, Stream, asking, inputs, streaming, text_of

MANY = 64


def until(reached: Callable[[], object]) -> None:
    """Wait for it; the test's own time limit ends a wait in vain."""
    while not reached():
        time.sleep(0.02)


def running(town: Town) -> list[str]:
    return asyncio.run(running_jobs(town))


def query(question: str) -> list[object]:
    return inputs("query", question=question, stream=True)


@pytest.mark.timeout(120)
def test_many_streams_at_once(telling: Serving, gate: Path) -> None:
    answer = "".join(words(6))
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(streaming(telling.grpc)) for _ in range(MANY)]
        for index, stream in enumerate(streams):
            stream.ask(query(f"tell 6 until {gate}"), str(index))
        gate.touch()
        for index, stream in enumerate(streams):
            came = stream.until_final()
            assert {response.id for response, _ in came} == {str(index)}
            texts = [text for _, text in came if text is not None]
            assert "".join(text["chunk"] for text in texts) == texts[-1]["answer"] == answer


@pytest.mark.timeout(120)
def test_many_requests_on_one_stream(telling: Serving, gate: Path) -> None:
    chunks: dict[str, str] = {str(index): "" for index in range(MANY)}
    with streaming(telling.grpc) as stream:
        for each in chunks:
            stream.ask(query(f"tell 6 until {gate}"), each)
        gate.touch()
        ended = 0
        while ended < MANY:
            response, text = stream.next()
            chunks[response.id] += text["chunk"]
            ended += response.parameters["triton_final_response"].bool_param
    assert set(chunks.values()) == {"".join(words(6))}


def test_a_caller_that_leaves_cancels_its_jobs(teller: Town, telling: Serving, gate: Path) -> None:
    """The jobs wait for a gate that stays shut: only a cancel ends them."""
    with asking(telling.grpc) as client:
        stream = Stream(client)
        for each in "abc":
            stream.ask(query(f"tell 4 until {gate}"), each)
        until(lambda: len(running(teller)) == 3)
        client.stop_stream(cancel_requests=True)
        until(lambda: not running(teller))
        call = client.async_infer(MODEL, inputs("query", question=f"tell 4 until {gate}"), lambda result, error: None)
        until(lambda: running(teller))
        call.cancel()
        until(lambda: not running(teller))
    assert {"CANCELLED"} <= {line["status"] for line in telling.lines if line.get("method") == "gRPC"}


LEAVING = """
import os, signal, sys
from tests.gateway.grpc.asked import inputs, streaming
with streaming(sys.argv[1]) as stream:
    stream.ask(inputs("query", question=sys.argv[2], stream=True))
    stream.next()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_dropped_connection_cancels_its_job(teller: Town, telling: Serving, gate: Path) -> None:
    command = [sys.executable, "-c", LEAVING, telling.grpc, f"tell 4 until {gate}"]
    left = subprocess.run(command, env=teller.variables, timeout=SECONDS)
    assert left.returncode == -signal.SIGKILL, "it died after the first piece"
    until(lambda: not running(teller))


def end(serving: Serving) -> subprocess.Popen[bytes]:
    process = serving.server.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    return process


def test_a_stopping_gateway_finishes_its_answers_and_closes_streams_with_a_reason(
    teller: Town, begin: Begin, gate: Path
) -> None:
    """It has more than time enough, and ends once its last answer is out."""
    serving = begin(teller, "--open", "--drain-seconds", str(2 * SECONDS), *GRPC)
    with asking(serving.grpc) as client, streaming(serving.grpc) as stream, streaming(serving.grpc) as idle:
        idle.ask(query("tell 1"))
        idle.until_final()
        stream.ask(query(f"tell 4 until {gate}"))
        assert stream.next()[1]["chunk"].startswith(words(4)[0])
        answers: list[tuple[object, object]] = []
        asked = inputs("query", question=f"tell 2 until {gate}")
        answer = client.async_infer(MODEL, asked, lambda result, error: answers.append((result, error)))
        until(lambda: len(running(teller)) == 2)
        process = end(serving)
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


def test_a_stopping_gateway_ends_answers_that_take_too_long(teller: Town, begin: Begin, gate: Path) -> None:
    """The gate stays shut."""
    serving = begin(teller, "--open", "--drain-seconds", "2", *GRPC)
    with streaming(serving.grpc) as stream:
        stream.ask(query(f"tell 4 until {gate}"))
        assert stream.next()[1]["chunk"].startswith(words(4)[0])
        process = end(serving)
        with pytest.raises(Exception, match="server_shutting_down"):
            while stream.next():
                pass
        assert process.wait(SECONDS) == 0
    until(lambda: not running(teller))
