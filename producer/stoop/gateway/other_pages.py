"""Keeps web pages of other sites away from a gateway that asks for no key: any page can call this machine's ports.

The checks are those of Go's `net/http.CrossOriginProtection`, and of servers for development against DNS rebinding
(a site whose name leads to 127.0.0.1, so that the browser takes the gateway for a part of that site).
"""

import ipaddress
from collections.abc import Mapping
from typing import Final

from stoop.gateway.errors import ApiError
from stoop.gateway.options import ServeOptions

__all__ = ["refuse_other_pages"]

_READS: Final = ("GET", "HEAD", "OPTIONS")
_REMEDY: Final = "name the page's origin in --cors-origins, or use --keys"


def refuse_other_pages(method: str, headers: Mapping[str, str], options: ServeOptions) -> None:
    """Raise an `ApiError` (403) for a request that a page of an origin outside `--cors-origins` causes.

    A program that is no browser sends none of the headers that tell this. A gateway that listens on the loopback
    interface also refuses a `Host` that could be another site's: a name with a dot.
    """
    if "*" in options.origins:
        return
    host = headers.get("host", "")
    named = {_authority(origin) for origin in options.origins}
    if _is_local(options.host) and host not in named and not _is_local_or_bare(host):
        raise ApiError(
            403, "origin_forbidden", f"this gateway asks for no key and serves this machine alone; {_REMEDY}"
        )
    origin = headers.get("origin")
    if method in _READS or origin in options.origins:
        return
    # a browser leaves the first header out where neither the page nor the gateway is local or has TLS
    site = headers.get("sec-fetch-site")
    is_other = site not in ("same-origin", "none") if site else origin is not None and _authority(origin) != host
    if is_other:
        raise ApiError(403, "origin_forbidden", f"a page of another origin may not change anything here; {_REMEDY}")


def _is_local(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _authority(origin: str) -> str:
    return origin.partition("://")[2]


def _is_local_or_bare(host: str) -> bool:
    """Return whether no site of the internet can have this name; a port may follow it."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return _is_address(name) or "." not in name or name.endswith(".localhost")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
