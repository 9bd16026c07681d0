"""`ModelStreamInfer`: a stream of requests, each answered as it comes, by one response or by many.

Requests of one stream run concurrently, so their responses mix; each has its request's id. A request that fails has
an `error_message`, and the stream continues, unless the caller's metadata `triton_grpc_error: true` ends it with the
error's status. When the caller cancels the stream, the jobs of all its requests are cancelled.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from grpc.aio import EOF

from stoop.gateway.errors import ApiError, shutting_down
from stoop.gateway.grpc.calls import Calls
from stoop.gateway.grpc.infer import FINAL, read_inference
from stoop.gateway.grpc.messages import message_class, read_message
from stoop.gateway.grpc.rpc import Rpc
from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.kserve.codes import message_of
from stoop.gateway.wait import CallerLeft

__all__ = ["InferStream"]

_AT_ONCE: Final = 256
"""Most requests of one stream in progress. The next ones wait in the caller."""

_REQUEST: Final = Rpc(name="ModelStreamInfer/request")

_Request: Final = message_class("ModelInferRequest")
_Response: Final = message_class("ModelStreamInferResponse")


class InferStream:
    """One such call. `context` is gRPC's."""

    def __init__(self, calls: Calls, context: Any, metadata: Mapping[str, str]) -> None:
        self._calls = calls
        self._context = context
        self._metadata = metadata
        self._ends_at_error = metadata.get("triton_grpc_error") == "true"
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._writing = asyncio.Lock()
        self._answering: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()

    async def serve(self, call: RpcCall) -> None:
        """Answer every request until the caller sends no more. Raises an `ApiError` that ends the stream."""
        draining = asyncio.ensure_future(call.gateway.drains.wait())
        self._calls.metrics.streams.inc()
        try:
            await self._read(draining)
            if self._answering:
                ends: list[asyncio.Future[Any]] = [
                    self._failed,
                    asyncio.gather(*self._answering, return_exceptions=True),
                ]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                raise self._failed.result()
            if draining.done():
                raise shutting_down()
        finally:
            self._calls.metrics.streams.dec()
            draining.cancel()
            for task in self._answering:
                task.cancel()
            # each cancels its job as it ends
            await asyncio.gather(*self._answering, return_exceptions=True)

    async def _read(self, draining: "asyncio.Future[Any]") -> None:
        """Begin requests until there are no more, the stream has failed, or the gateway drains."""
        number = 0
        while await self._unless_over(self._room.acquire(), draining) is not EOF:
            number += 1
            if not self._begin(await self._unless_over(self._context.read(), draining), number):
                return

    async def _unless_over(self, work: Coroutine[Any, Any, Any], draining: "asyncio.Future[Any]") -> Any:
        """Return what `work` returns, or EOF if the stream fails or the gateway drains first."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, draining, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else EOF
        finally:
            task.cancel()

    def _begin(self, message: Any, number: int) -> bool:
        """Start to answer the message while others are in progress; return False at the end of the stream."""
        if message is EOF:
            return False
        task = asyncio.create_task(self._answer(message, number))
        self._answering.add(task)
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._answering.discard(task)
        self._room.release()

    async def _answer(self, message: bytes, number: int) -> None:
        request = _Request()

        async def work(call: RpcCall) -> None:
            nonlocal message
            read_message(message, request)
            message = b""  # the request has a copy of it, and may wait for long
            call.metadata = self._metadata_of(request.id or str(number))
            await self._infer(call, request)

        ended = await self._calls.run(_REQUEST, self._metadata, work)
        if ended.error is not None:
            await self._refuse(request, ended.error)

    def _metadata_of(self, request: str) -> Mapping[str, str]:
        """Return the stream's metadata, with an idempotency key for this request alone."""
        key = self._metadata.get("idempotency-key")
        return {**self._metadata, "idempotency-key": f"{key}/{request}"} if key else self._metadata

    async def _infer(self, call: RpcCall, request: Any) -> None:
        inference = await read_inference(call, request)
        async with contextlib.aclosing(inference.texts(call)) as texts:
            async for text, is_last in texts:
                await self._send(inference.response(text, is_final=is_last and not inference.wants_last))
        if inference.wants_last:
            await self._send(inference.response(is_final=True))

    async def _refuse(self, request: Any, error: ApiError) -> None:
        if self._ends_at_error:
            if not self._failed.done():
                self._failed.set_result(error)
            return
        response = _Response(error_message=message_of(error))
        response.infer_response.id = request.id
        response.infer_response.model_name = request.model_name
        response.infer_response.parameters[FINAL].bool_param = True
        with contextlib.suppress(CallerLeft):
            await self._write(response)

    async def _send(self, response: Any) -> None:
        await self._write(_Response(infer_response=response))

    async def _write(self, response: Any) -> None:
        async with self._writing:
            try:
                await self._context.write(response.SerializeToString())
            except Exception:  # gRPC has several, all of them for a call that is over
                raise CallerLeft from None
