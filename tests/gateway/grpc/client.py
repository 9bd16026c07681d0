"""Inputs, streams and keys for Triton's client."""

import contextlib
import json
import queue
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.grpc")
np_utils = pytest.importorskip("tritonclient.utils")

__all__ = [
    "MODEL",
    "SECONDS",
    "Stream",
    "grpc_client",
    "inputs",
    "refused",
    "streaming",
    "tensor",
    "text_of",
    "triton",
]

MODEL = "moondream"
SECONDS = 60.0

_DATATYPES = {bool: "BOOL", int: "INT32", float: "FP32", str: "BYTES", bytes: "BYTES", list: "BYTES"}


def tensor(name: str, value: Any, datatype: str | None = None) -> Any:
    """An input: a scalar, or BYTES for the texts of a list."""
    datatype = datatype or _DATATYPES[type(value)]
    values = value if isinstance(value, list) else [value]
    if datatype == "BYTES":
        array = np.array([each.encode() if isinstance(each, str) else each for each in values], dtype=np.object_)
    else:
        array = np.array(values, dtype=np_utils.triton_to_np_dtype(datatype))
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def inputs(skill: str, **values: Any) -> list[Any]:
    """The inputs of a request; `question="…"` is QUESTION."""
    return [tensor("SKILL", skill), *(tensor(name.upper(), value) for name, value in values.items())]


def text_of(result: Any) -> dict[str, Any]:
    """The JSON of a response."""
    [found] = result.as_numpy("TEXT_OUTPUT")
    read: dict[str, Any] = json.loads(found)
    return read


@contextlib.contextmanager
def grpc_client(address: str, **options: Any) -> Iterator[Any]:
    """A client of a server that is ready, which it is once its worker is in the registry."""
    with contextlib.closing(triton.InferenceServerClient(address, **options)) as client:
        while not client.is_server_ready():
            time.sleep(0.05)
        try:
            yield client
        finally:
            client.stop_stream(cancel_requests=True)  # otherwise a failed test waits for the answers


def refused(call: Any, *arguments: Any, **named: Any) -> tuple[str, str]:
    """The status and the message of a call that must fail."""
    with pytest.raises(np_utils.InferenceServerException) as caught:
        call(*arguments, **named)
    return caught.value.status().removeprefix("StatusCode."), caught.value.message()


class Stream:
    """The one stream of a client, and its responses."""

    def __init__(self, client: Any, **options: Any) -> None:
        self.client = client
        self._came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(callback=lambda result, error: self._came.put((result, error)), **options)

    def ask(self, given: list[Any], request_id: str = "", *, model: str = MODEL, **options: Any) -> None:
        self.client.async_stream_infer(model, given, request_id=request_id, **options)

    def next(self) -> Any:
        """The next response; raises the stream's error."""
        result, error = self._came.get(timeout=SECONDS)
        if error is not None:
            raise error
        return result.get_response(), (text_of(result) if result.get_response().outputs else None)

    def until_final(self) -> list[tuple[Any, dict[str, Any] | None]]:
        """The responses to one request, to the last."""
        found = [self.next()]
        while not found[-1][0].parameters["triton_final_response"].bool_param:
            found.append(self.next())
        return found


@contextlib.contextmanager
def streaming(address: str, **options: Any) -> Iterator[Stream]:
    with grpc_client(address) as client:
        yield Stream(client, **options)
