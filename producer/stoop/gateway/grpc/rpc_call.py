"""One call by gRPC in progress: an RPC, or one request within a stream of them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stoop.gateway.admitted import AdmittedCall
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import ApiKey

__all__ = ["CallState", "RpcCall"]


@dataclass(slots=True)
class CallState:
    """The fields of a call for the access log."""

    request_id: str
    traceparent: str | None = None
    tokens: int = 0
    facts: dict[str, object] = field(default_factory=dict)
    closers: list[Callable[[], object]] = field(default_factory=list)


@dataclass(slots=True)
class RpcCall(AdmittedCall):
    """An admitted call. `headers` become its trailing metadata; `metadata` is the caller's, by names in lower case."""

    gateway: Gateway
    metadata: Mapping[str, str]
    key: ApiKey
    state: CallState
    headers: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        """Return an entry of the caller's metadata, None if it is absent or empty."""
        return self.metadata.get(name) or None

    async def left(self) -> None:
        """Never return: gRPC cancels the call when its caller leaves."""
        await asyncio.get_running_loop().create_future()
