"""Connections to hosts of the public internet alone, pinned to the address that was checked."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from httpcore2 import SOCKET_OPTION, AsyncNetworkBackend, AsyncNetworkStream, ConnectError, ConnectTimeout, NetworkError

from stoop_worker.errors import ImageForbidden, StorageUnavailable
from stoop_worker.jobs.fetch.address_public import is_public

__all__ = ["PublicBackend", "Resolve", "resolve"]

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""From a host's name to its IP addresses; raises `OSError`."""

_MOST_ADDRESSES: Final = 3
"""The number of a host's addresses that are tried at most."""


async def resolve(host: str) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class PublicBackend(AsyncNetworkBackend):
    """Resolves a host's name once, checks every address, and lets `backend` connect to one of them by number."""

    def __init__(self, resolve: Resolve, backend: AsyncNetworkBackend) -> None:
        self._resolve = resolve
        self._backend = backend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the host.

        Raises `ImageForbidden` unless all its addresses are public, `StorageUnavailable` if it has none, and httpcore's
        errors if no address answers; `timeout` bounds the resolving and each connection, in seconds.
        """
        failure: NetworkError | ConnectTimeout = ConnectError(f"{host} has no address")
        for ip in (await self._addresses(host, timeout))[:_MOST_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(ip, port, timeout, local_address, socket_options)
            except (ConnectError, ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, timeout: float | None) -> Sequence[str]:
        found: Sequence[str] = ()
        try:
            with contextlib.suppress(socket.gaierror, UnicodeError):
                async with asyncio.timeout(timeout):
                    found = await self._resolve(host)
        except TimeoutError:
            raise ConnectTimeout(f"{host} was not resolved in time") from None
        if not found:
            raise StorageUnavailable(f"there is no host {host}")
        if not all(map(is_public, found)):
            raise ImageForbidden(f"this worker does not read from {host}: its host is not on the public internet")
        return found

    async def sleep(self, seconds: float) -> None:
        """Sleep, for httpcore's retries; this module asks for none."""
        await asyncio.sleep(seconds)
