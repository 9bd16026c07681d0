"""One HTTP request in progress: its caller, its body, and the headers of its answer."""

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from stoop.gateway.admitted import AdmittedCall
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import ApiKey, Scope

__all__ = ["Call"]


@dataclass(slots=True)
class Call(AdmittedCall):
    """An admitted request."""

    gateway: Gateway
    request: Request
    key: ApiKey
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Any:
        """The part of the request's ASGI scope that the access log made."""
        return self.request.state

    def header(self, name: str) -> str | None:
        """Return the header of this name in lower case, None if it is absent or empty."""
        given: bytes | None = self.request.scope["state"]["given"].get(name.encode())
        return given.decode("latin-1") if given else None

    def may(self, scope: Scope) -> bool:
        """Return whether the caller's key has the scope."""
        return self.key.opens(scope)

    @property
    def keeps_job(self) -> bool:
        """Return whether the job keeps running after its caller has left, because the caller can ask for it again."""
        return self.idempotency_key is not None or self.wants_no_wait

    @property
    def wants_no_wait(self) -> bool:
        """Return whether the caller wants the job's id at once, by `Prefer: respond-async`."""
        given = self.header("prefer")
        if given is None:
            return False
        preferences = given.lower().split(",")
        return "respond-async" in (each.strip() for each in preferences)

    async def left(self) -> None:
        """Return when the connection is closed."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
