"""One row of the table of RPCs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.keys import Scope

__all__ = ["Rpc", "UnaryRpc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """An RPC as the check of keys, the log and the metrics need it. Without a `scope` anybody may call it.

    One that is not `limited` is open for long, and counts no request against the limits of its key.
    """

    name: str
    scope: Scope | None = Scope.JOBS
    limited: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryRpc(Rpc):
    """An RPC with one request, a message of the class `request`, and one response, which `run` returns."""

    request: Any
    run: Callable[[RpcCall, Any], Awaitable[Any]]
