"""The table of RPCs. gRPC's router is made from it, and nothing else is served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from grpc.aio import EOF

from stoop.gateway.errors import ApiError
from stoop.gateway.gateway import Gateway
from stoop.gateway.grpc import about, infer
from stoop.gateway.grpc.calls import Calls, Ended
from stoop.gateway.grpc.messages import GRPC_NAME, message_class, read_message
from stoop.gateway.grpc.rpc import Rpc, UnaryRpc
from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.grpc.stream import InferStream
from stoop.gateway.kserve.codes import message_of

__all__ = ["RPCS", "STREAM", "router"]


def _unary(name: str, run: Any, **more: Any) -> UnaryRpc:
    return UnaryRpc(name=name, request=message_class(f"{name}Request"), run=run, **more)


RPCS: Final = (
    _unary("ServerLive", about.server_live, scope=None),
    _unary("ServerReady", about.server_ready, scope=None),
    _unary("ServerMetadata", about.server_metadata),
    _unary("ModelReady", about.model_ready),
    _unary("ModelMetadata", about.model_metadata),
    _unary("ModelConfig", about.model_config),
    _unary("RepositoryIndex", about.list_models),
    _unary("ModelInfer", infer.infer),
)
STREAM: Final = Rpc(name="ModelStreamInfer", limited=False)
"""The RPC with many requests. Each of them is a call of its own, under the key's limits."""


def router(gateway: Gateway) -> grpc.GenericRpcHandler:
    """Return the handler by which gRPC's server finds the RPCs.

    It passes messages as bytes, so that an unreadable message is a caller's error with a line in the log. It declares
    every RPC with a stream of requests: of any other RPC gRPC would read the message before the handler could check the
    key and the limits.
    """
    calls = Calls(gateway)
    methods = {rpc.name: grpc.stream_unary_rpc_method_handler(_answering(calls, rpc)) for rpc in RPCS}
    methods[STREAM.name] = grpc.stream_stream_rpc_method_handler(_streaming(calls))
    return grpc.method_handlers_generic_handler(GRPC_NAME, methods)


def _answering(calls: Calls, rpc: UnaryRpc) -> Callable[[Any, Any], Awaitable[bytes]]:
    async def answer(_: Any, context: Any) -> bytes:
        async def work(call: RpcCall) -> Any:
            return await rpc.run(call, await _read(rpc, context))

        ended = await calls.run(rpc, _metadata(context), work)
        await _finish(context, ended)
        written: bytes = ended.answer.SerializeToString()
        return written

    return answer


async def _read(rpc: UnaryRpc, context: Any) -> Any:
    """Return the message of the call. That of a public RPC is empty, so it stays unread."""
    request = rpc.request()
    if rpc.scope is None:
        return request
    message = await context.read()
    if message is EOF:
        raise ApiError(400, "invalid_value", f"the call has no message: send a {request.DESCRIPTOR.full_name}")
    return read_message(message, request)


def _streaming(calls: Calls) -> Callable[[Any, Any], Awaitable[None]]:
    async def stream(_: Any, context: Any) -> None:
        metadata = _metadata(context)
        ended = await calls.run(STREAM, metadata, InferStream(calls, context, metadata).serve)
        await _finish(context, ended)

    return stream


async def _finish(context: Any, ended: Ended) -> None:
    """Set the trailing metadata; a failed call ends here with its status."""
    if ended.error is not None:
        await context.abort(ended.status, message_of(ended.error), ended.metadata)
    context.set_trailing_metadata(ended.metadata)


def _metadata(context: Any) -> Mapping[str, str]:
    """Return the caller's metadata in lower case; entries of bytes are no concern of this server."""
    return {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
