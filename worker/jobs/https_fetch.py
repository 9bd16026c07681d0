"""Images from web servers, where a worker allows it: the one way in which a job makes this machine call another.

So a job must not choose what is called beyond the public internet. The host's name is resolved once, every address it
has must be public, and the connection goes to the address that was checked, not to the name: a name that resolves to
something else a moment later gains nothing. The certificate is still checked against the name. No proxy is used.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from worker.errors import (
    ImageAddressInvalid,
    ImageError,
    ImageForbidden,
    ImageNotFound,
    ImageTimeout,
    ImageUndecodable,
    StorageUnavailable,
)
from worker.jobs.address_public import is_public
from worker.jobs.address_web import WebAddress, parse_web
from worker.jobs.https_message import HEAD_BYTES, Head, read_body, read_head

__all__ = ["Connect", "HttpsConfig", "HttpsFetcher", "Resolve", "connect", "resolve"]

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""From a host's name to its IP addresses; raises `OSError`."""

Connect = Callable[[str, str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""From an IP address, and the name that its certificate must bear, to a TLS connection; raises `OSError`."""

_PORT: Final = 443
_REDIRECTS: Final = 3
_REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})
_TRIED: Final = 3  # of a host's addresses


async def resolve(host: str) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, _PORT, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def connect(ip: str, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a TLS connection to port 443 of `ip`, whose certificate must be of `host` and trusted by the system."""
    trusted = ssl.create_default_context()
    return await asyncio.open_connection(ip, _PORT, ssl=trusted, server_hostname=host, limit=HEAD_BYTES)


@dataclass(frozen=True, slots=True)
class HttpsConfig:
    """Which web servers images come from, and what one may cost; times are in seconds, `timeout` bounds one in all.

    `hosts` has entries `example.org`, this host alone, or `*.example.org`, every host below it; empty allows all that
    are public. `connect_timeout` bounds the resolving and each connection, `read_timeout` each wait for a byte.
    """

    hosts: tuple[str, ...] = ()
    max_bytes: int = 32 << 20
    timeout: float = 20.0
    connect_timeout: float = 3.0
    read_timeout: float = 10.0

    def allows(self, host: str) -> bool:
        """Say whether an entry of `hosts` covers the host."""
        allowed = (entry.lower() for entry in self.hosts)
        return not self.hosts or any(
            host.endswith(entry[1:]) if entry.startswith("*.") else host == entry for entry in allowed
        )


class HttpsFetcher:
    """Fetches images by `https://`."""

    def __init__(self, config: HttpsConfig, *, resolve: Resolve = resolve, connect: Connect = connect) -> None:
        self._config = config
        self._resolve = resolve
        self._connect = connect

    async def fetch(self, image_uri: str) -> bytes:
        """Return the body at this address, following at most 3 redirects, each checked like the first address.

        What the server says of its type is not looked at. Raises the `ImageError` that says why it cannot be had.
        """
        address = parse_web(image_uri)
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._follow(address)
        except TimeoutError:
            raise ImageTimeout(f"{address} did not arrive in time") from None

    async def _follow(self, address: WebAddress) -> bytes:
        for _ in range(_REDIRECTS + 1):
            found = await self._get(address)
            if isinstance(found, bytes):
                return found
            address = found
        raise ImageForbidden(f"more than {_REDIRECTS} redirects lead to {address}")

    async def _get(self, address: WebAddress) -> bytes | WebAddress:
        """Return the body, or where the server says that it is."""
        if not self._config.allows(address.host):
            raise ImageForbidden(f"this worker does not read {address}: its host is not allowed")
        reader, writer = await self._open(address)
        try:
            writer.write(_request(address))
            async with asyncio.timeout(self._config.read_timeout):
                await writer.drain()
                head = await read_head(reader)
            if head.status_code in _REDIRECT_CODES:
                return address.join(head.headers.get("location", ""))
            _check(head, address)
            return await read_body(reader, head, max_bytes=self._config.max_bytes, gap=self._config.read_timeout)
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise StorageUnavailable(f"the web server broke off before {address} was there") from error
        finally:
            # not closed in order: a server that does not answer must not hold this up
            writer.transport.abort()

    async def _open(self, address: WebAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the host's addresses, all of which are checked first."""
        trouble: ImageError = StorageUnavailable(f"there is no host {address.host}")
        for ip in (await self._addresses(address))[:_TRIED]:
            try:
                async with asyncio.timeout(self._config.connect_timeout):
                    return await self._connect(ip, address.host)
            except ssl.SSLCertVerificationError as error:
                raise ImageForbidden(f"the certificate of {address.host} cannot be trusted") from error
            except (OSError, EOFError) as error:
                timed_out = isinstance(error, TimeoutError)
                trouble = (ImageTimeout if timed_out else StorageUnavailable)(f"{address.host} does not answer")
        raise trouble

    async def _addresses(self, address: WebAddress) -> Sequence[str]:
        found: Sequence[str] = ()
        with contextlib.suppress(socket.gaierror, UnicodeError):
            async with asyncio.timeout(self._config.connect_timeout):
                found = await self._resolve(address.host)
        if not all(map(is_public, found)):
            raise ImageForbidden(f"this worker does not read {address}: its host is not on the public internet")
        return found


def _request(address: WebAddress) -> bytes:
    # no coding but the plain one: a compressed answer could unpack to any size
    return (
        f"GET {address.target} HTTP/1.1\r\nHost: {address.host}\r\nUser-Agent: stoop\r\nAccept: image/*\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
    ).encode("ascii")


def _check(head: Head, address: WebAddress) -> None:
    """Raise what an answer other than the image means."""
    match head.status_code:
        case 200:
            if head.headers.get("content-encoding", "identity").lower() != "identity":
                raise ImageUndecodable(f"{address} came compressed, which was not asked for")
        case 404 | 410:
            raise ImageNotFound(f"there is nothing at {address}")
        case 401 | 403 | 407 | 451:
            raise ImageForbidden(f"the web server does not let this worker read {address}")
        case 408 | 504:
            raise ImageTimeout(f"the web server took too long to give {address}")
        case status_code if status_code == 429 or status_code >= 500:
            raise StorageUnavailable(f"the web server answered {status_code} for {address}")
        case status_code:
            raise ImageAddressInvalid(f"the web server answered {status_code} for {address}")
