"""The table of RPCs. gRPC's router is made from it, and nothing is served beside it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from stoop.gateway.grpc import about, infer
from stoop.gateway.grpc.calls import Calls, Ended
from stoop.gateway.grpc.messages import GRPC_NAME, message_class, read_message
from stoop.gateway.grpc.rpc import Rpc, UnaryRpc
from stoop.gateway.grpc.stream import InferStream
from stoop.kserve.codes import message_of

if TYPE_CHECKING:
    from stoop.gateway.gateway import Gateway

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


def router(gateway: "Gateway") -> grpc.GenericRpcHandler:
    """Return what gRPC's server finds the RPCs by.

    Messages pass it as bytes: a message that cannot be read is then a caller's error, with a line in the log.
    """
    calls = Calls(gateway)
    methods = {rpc.name: grpc.unary_unary_rpc_method_handler(_answering(calls, rpc)) for rpc in RPCS}
    methods[STREAM.name] = grpc.stream_stream_rpc_method_handler(_streaming(calls))
    return grpc.method_handlers_generic_handler(GRPC_NAME, methods)


def _answering(calls: Calls, rpc: UnaryRpc) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def answer(message: bytes, context: Any) -> bytes:
        ended = await calls.run(
            rpc, _metadata(context), lambda call: rpc.run(call, read_message(message, rpc.request()))
        )
        await _finish(context, ended)
        written: bytes = ended.answer.SerializeToString()
        return written

    return answer


def _streaming(calls: Calls) -> Callable[[Any, Any], Awaitable[None]]:
    async def stream(_: Any, context: Any) -> None:
        metadata = _metadata(context)
        ended = await calls.run(STREAM, metadata, InferStream(calls, context, metadata).serve)
        await _finish(context, ended)

    return stream


async def _finish(context: Any, ended: Ended) -> None:
    """Set what comes behind the answer; a failed call ends here with its status."""
    if ended.error is not None:
        await context.abort(ended.status, message_of(ended.error), ended.metadata)
    context.set_trailing_metadata(ended.metadata)


def _metadata(context: Any) -> Mapping[str, str]:
    """Return the caller's metadata in lower case; entries of bytes are no concern of this server."""
    return {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
