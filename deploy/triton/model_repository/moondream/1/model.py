"""The model as Triton's Python backend loads it. All except the tensors is in `stoop.gateway.kserve.triton_model`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from stoop.gateway.kserve.ask import Value
from stoop.gateway.kserve.inputs import OUTPUT
from stoop.gateway.kserve.triton_model import TritonModel


class TritonPythonModel:
    """A producer: it submits jobs to the queue and needs no GPU."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the `STOOP_*` variables; the queue is reached with the first request."""
        self._model = TritonModel()

    async def execute(self, requests: Sequence[Any]) -> None:
        """Answer the requests, side by side with those of other calls."""
        await asyncio.gather(*(self._model.answer(_Request(request)) for request in requests))

    async def is_ready(self) -> bool:
        """Return whether a worker lives. Triton asks from release 26.03 on."""
        return await self._model.is_ready()

    def finalize(self) -> None:
        """Disconnect."""
        self._model.close()


class _Request:
    """A request of Triton as `TritonRequest`."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._sender = request.get_response_sender()

    @property
    def id(self) -> str:
        return self._request.request_id()

    def inputs(self) -> dict[str, list[Value]]:
        return {tensor.name(): tensor.as_numpy().reshape(-1).tolist() for tensor in self._request.inputs()}

    def is_cancelled(self) -> bool:
        return self._request.is_cancelled()

    def send(self, text: str) -> None:
        self._sender.send(pb_utils.InferenceResponse([pb_utils.Tensor(OUTPUT, np.array([text], dtype=np.object_))]))

    def end(self) -> None:
        self._sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def fail(self, code: str, message: str) -> None:
        error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
        # in one response: Triton closes a stream at an error, and may crash at what follows
        response = pb_utils.InferenceResponse(output_tensors=[], error=error)
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
