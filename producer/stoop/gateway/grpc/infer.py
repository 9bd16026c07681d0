"""Turns a `ModelInferRequest` into a job, and its answer into `ModelInferResponse`s."""

import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from stoop.gateway.answer import result_of
from stoop.gateway.errors import ApiError
from stoop.gateway.grpc.messages import message_class
from stoop.gateway.grpc.model_names import VERSION, model_for_job
from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.grpc.tensors import read_tensors, write_text
from stoop.gateway.kserve.answer import texts_of, whole_text
from stoop.gateway.kserve.ask import ask_of
from stoop.gateway.kserve.inputs import OUTPUT
from stoop.gateway.pieces import Pieces
from stoop.gateway.submission import prepare, submit
from stoop_schemas.job import Job

__all__ = ["FINAL", "Inference", "infer", "read_inference"]

FINAL: Final = "triton_final_response"
"""The parameter that is true in the last response to a request of a stream."""

_EMPTY_FINAL: Final = "triton_enable_empty_final_response"
_Response: Final = message_class("ModelInferResponse")
_MOST_SECONDS: Final = 10 * 365 * 86400


@dataclass(frozen=True, slots=True)
class Inference:
    """A request as a checked job. `asked` is the skill in the caller's words."""

    request: Any
    job: Job
    asked: str

    @property
    def wants_last(self) -> bool:
        """Return whether the caller wants a stream to end with a response without outputs."""
        given = self.request.parameters
        return _EMPTY_FINAL in given and bool(given[_EMPTY_FINAL].bool_param)

    def response(self, text: str | None = None, *, is_final: bool | None = None) -> Any:
        """Return a response; its text is in the form in which the request's inputs came."""
        answer = _Response(model_name=self.request.model_name, model_version=VERSION, id=self.request.id)
        if text is not None:
            write_text(answer, OUTPUT, text.encode(), raw=bool(self.request.raw_input_contents))
        if is_final is not None:
            answer.parameters[FINAL].bool_param = is_final
        return answer

    async def text(self, call: RpcCall) -> str:
        """Submit the job and return its whole answer. Raises `StoopError` or `ApiError`."""
        result = await result_of(call, self.job)
        return whole_text(result, self._request_id(call), asked=self.asked)

    async def texts(self, call: RpcCall) -> AsyncGenerator[tuple[str, bool], None]:
        """Submit the job and yield the texts of its answer; the last one with True.

        Raises `StoopError` or `ApiError`.
        """
        if not self.job.stream:
            yield await self.text(call), True
            return
        job_id = await submit(call, self.job)
        seconds = call.gateway.client.config.timeout_seconds
        pieces = Pieces(call.follow(job_id, timeout=seconds, cancels=not call.keeps_job))
        last = ""
        async for text in texts_of(pieces, self._request_id(call), asked=self.asked):
            if last:
                yield last, False
            # once there is a result, the other texts follow at once
            last = text if pieces.result else ""
            if not last:
                yield text, False
        if pieces.result is not None:
            call.spent(pieces.result)
        yield last, True

    def _request_id(self, call: RpcCall) -> str:
        return str(self.request.id) or call.request_id


async def read_inference(call: RpcCall, request: Any) -> Inference:
    """Read and check a request. Raises `StoopError` or `ApiError`."""
    _check_outputs(request)
    tensors = read_tensors(request)
    ask = await ask_of({name: tensor.elements for name, tensor in tensors.items()})
    model = await model_for_job(call.gateway.models, request.model_name, request.model_version, ask.model)
    ask = replace(ask, model=model, fields={**_deadline(request.parameters), **ask.fields})
    asked = tensors["SKILL"].elements[0].decode()
    return Inference(request, await prepare(call, ask), asked)


async def infer(call: RpcCall, request: Any) -> Any:
    """Answer `ModelInfer`: the whole answer in one response."""
    inference = await read_inference(call, request)
    if inference.job.stream:
        problem = "STREAM is true, but ModelInfer has one response: leave STREAM out, or call ModelStreamInfer"
        raise ApiError(400, "invalid_value", problem, param="STREAM")
    return inference.response(await inference.text(call))


def _check_outputs(request: Any) -> None:
    for output in request.outputs:
        if output.name != OUTPUT:
            problem = f"there is no output {output.name[:64]!r}: ask for {OUTPUT}, or for none in particular"
            raise ApiError(400, "invalid_value", problem, param=output.name[:64])
        if output.parameters:
            problem = f"{OUTPUT} has no parameters: there is no shared memory, and no classification"
            raise ApiError(400, "unsupported_parameter", problem, param=OUTPUT)


def _deadline(parameters: Mapping[str, Any]) -> dict[str, int]:
    """Return the deadline of a job whose caller gives the parameter `timeout`, in microseconds."""
    microseconds = parameters["timeout"].int64_param if "timeout" in parameters else 0
    if microseconds < 0 or microseconds > _MOST_SECONDS * 1_000_000:
        problem = "the parameter timeout is in microseconds, and must be positive: leave it out for no limit"
        raise ApiError(400, "invalid_value", problem, param="timeout")
    return {"deadline": round(1000 * time.time() + microseconds / 1000)} if microseconds else {}
