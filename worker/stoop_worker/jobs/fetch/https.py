"""Reads images from web servers, if the worker allows it: the only way for a job to make this machine call another.

A job must not choose a target inside our own network. `PublicBackend` therefore resolves the host's name once, refuses
it unless every address is public, and connects to the address that it checked. A name that resolves to something else
a moment later gains nothing. The certificate is still checked against the name. No proxy and no credentials are used.
"""

import asyncio
import ssl
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from typing import Final

from httpcore2 import (
    AnyIOBackend,
    AsyncHTTPConnection,
    AsyncNetworkBackend,
    NetworkError,
    Origin,
    ProtocolError,
    Request,
    Response,
    TimeoutException,
)

from stoop_worker.errors import (
    ImageAddressInvalid,
    ImageForbidden,
    ImageNotFound,
    ImageTimeout,
    ImageTooLarge,
    ImageUndecodable,
    StorageUnavailable,
)
from stoop_worker.jobs.fetch.address_web import WebAddress, parse_web
from stoop_worker.jobs.fetch.public_backend import PublicBackend, Resolve, resolve

__all__ = ["HttpsConfig", "HttpsFetcher"]

_PORT: Final = 443
_REDIRECTS: Final = 3
_REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class HttpsConfig:
    """The allowed web servers and the limits on one image. Times are in seconds.

    An entry of `hosts` is `example.org`, this host alone, or `*.example.org`, every host below it. Without entries,
    every public host is allowed. `timeout` bounds one image in total, `connect_timeout` the resolving and each
    connection, `read_timeout` each wait for a byte. `accept` names the types of content to ask for. `header` is sent to
    the first host, and not on redirects.
    """

    hosts: tuple[str, ...] = ()
    max_bytes: int = 32 << 20
    timeout: float = 20.0
    connect_timeout: float = 3.0
    read_timeout: float = 10.0
    accept: str = "image/*, audio/*, video/*"
    header: tuple[str, str] | None = field(default=None, repr=False)  # may be a key

    def allows(self, host: str) -> bool:
        """Return whether an entry of `hosts` covers the host."""
        allowed = (entry.lower() for entry in self.hosts)
        return not self.hosts or any(
            host.endswith(entry[1:]) if entry.startswith("*.") else host == entry for entry in allowed
        )


class HttpsFetcher:
    """Fetches images by `https://`, each over a connection of its own.

    `backend` opens connections to checked addresses; `trust` verifies certificates, by default with the system's
    authorities.
    """

    def __init__(
        self,
        config: HttpsConfig,
        *,
        resolve: Resolve = resolve,
        backend: AsyncNetworkBackend | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._backend = PublicBackend(resolve, backend or AnyIOBackend())
        self._trust = trust or ssl.create_default_context()

    async def fetch(self, image_uri: str) -> bytes:
        """Return the body at this address, following at most 3 redirects, each checked like the first address.

        The content type is ignored. Raises an `ImageError` with the reason if that fails.
        """
        address = parse_web(image_uri)
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._follow(address)
        except TimeoutError:
            raise ImageTimeout(f"{address} did not arrive in time") from None

    async def _follow(self, address: WebAddress) -> bytes:
        header = self._config.header
        for _ in range(_REDIRECTS + 1):
            found = await self._get(address, header)
            if isinstance(found, bytes):
                return found
            address, header = found, None
        raise ImageForbidden(f"more than {_REDIRECTS} redirects lead to {address}")

    async def _get(self, address: WebAddress, header: tuple[str, str] | None) -> bytes | WebAddress:
        """Return the body, or the address to which the server redirects."""
        if not self._config.allows(address.host):
            raise ImageForbidden(f"this worker does not read {address}: its host is not allowed")
        origin = Origin(b"https", address.host.encode(), _PORT)
        connection = AsyncHTTPConnection(origin, ssl_context=self._trust, network_backend=self._backend)
        try:
            return await self._read(await connection.handle_async_request(self._request(address, header)), address)
        except TimeoutException:
            raise ImageTimeout(f"{address} did not arrive in time: {address.host} was silent for too long") from None
        except NetworkError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise ImageForbidden(f"the certificate of {address.host} cannot be trusted") from error
            raise StorageUnavailable(
                f"{address.host} does not answer, or closed the connection before {address} arrived"
            ) from error
        except ProtocolError as error:
            raise StorageUnavailable(
                f"{address.host} does not speak valid HTTP/1.1, or closed the connection"
            ) from error
        finally:
            await connection.aclose()

    def _request(self, address: WebAddress, header: tuple[str, str] | None) -> Request:
        timeout = {"connect": self._config.connect_timeout, "read": self._config.read_timeout}
        headers: dict[bytes | str, bytes | str] = {
            "Host": address.host,
            "User-Agent": "stoop",
            "Accept": self._config.accept,
            "Accept-Encoding": "identity",  # a compressed answer could unpack to any size
            "Connection": "close",
        }
        if header is not None:
            headers[header[0]] = header[1]
        url = f"https://{address.host}{address.target}"
        return Request("GET", url, headers=headers, extensions={"timeout": {**timeout, "write": timeout["read"]}})

    async def _read(self, response: Response, address: WebAddress) -> bytes | WebAddress:
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        if response.status in _REDIRECT_CODES:
            return address.join(headers.get(b"location", ""))
        _check_status(response.status, address)
        if headers.get(b"content-encoding", "identity").lower() != "identity":
            raise ImageUndecodable(f"{address} came compressed, although we asked for the plain file")
        self._check_size(int(headers.get(b"content-length", "0")))
        assert isinstance(response.stream, AsyncIterable)
        body = bytearray()
        async for piece in response.stream:
            body += piece
            self._check_size(len(body))
        return bytes(body)

    def _check_size(self, size: int) -> None:
        if size > self._config.max_bytes:
            raise ImageTooLarge(f"the file has {size} bytes or more: at most {self._config.max_bytes}")


def _check_status(status_code: int, address: WebAddress) -> None:
    """Raise the error for an answer that is not the image."""
    match status_code:
        case 200:
            return
        case 404 | 410:
            raise ImageNotFound(f"there is nothing at {address}")
        case 401 | 403 | 407 | 451:
            raise ImageForbidden(f"the web server does not let this worker read {address}")
        case 408 | 504:
            raise ImageTimeout(f"the web server took too long to give {address}")
        case _ if status_code == 429 or status_code >= 500:
            raise StorageUnavailable(f"the web server answered {status_code} for {address}")
        case _:
            raise ImageAddressInvalid(f"the web server answered {status_code} for {address}")
