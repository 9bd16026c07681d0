"""Parses `https://` image addresses. Stricter than a browser: it refuses every ambiguous address."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urljoin

from stoop_worker.errors import ImageAddressInvalid, ImageForbidden

__all__ = ["WebAddress", "parse_web"]

_WEB: Final = re.compile(r"https://(?P<authority>[^/?#\\]*)(?P<target>[/?][^#]*)?(?:#.*)?", re.I | re.S)
# two labels or more, and the last one is not a number, so no spelling of an IP address matches
_HOST: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?(?::443)?", re.I | re.A
)
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_LENGTH: Final = 4096


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A host name in lower case, and the target of the request (path and query, percent-encoded)."""

    host: str
    target: str

    def __str__(self) -> str:
        # the query may hold a signature or a secret
        return f"https://{self.host}{self.target.split('?')[0][:200]}"

    def join(self, location: str) -> "WebAddress":
        """Parse the target of a redirect from here. Raises `ImageForbidden` if `parse_web` would refuse it."""
        try:
            if location:
                return parse_web(urljoin(f"https://{self.host}{self.target}", location))
        except (ValueError, ImageAddressInvalid) as error:
            raise ImageForbidden(f"{self} redirects to an address that this worker does not read") from error
        raise ImageForbidden(f"{self} redirects without a location")


def parse_web(address: str) -> WebAddress:
    """Parse `https://host/path?query`: a host name, port 443, no user or password; the fragment is dropped.

    Raises `ImageAddressInvalid` for every other address; the message never repeats it.
    """
    match = _WEB.fullmatch(address)
    if not match or len(address) > _LENGTH:
        raise ImageAddressInvalid(f"the address must be https://host/path of at most {_LENGTH} characters")
    authority, target = match["authority"], match["target"] or "/"
    if "@" in authority:
        raise ImageAddressInvalid("an https address must not have a user or password in it")
    if len(authority) > 253 or not _HOST.fullmatch(authority):
        raise ImageAddressInvalid(
            "an https address must name its host by a full name of A-Z a-z 0-9 . - (no IP address), on port 443"
        )
    if any(character <= " " or character == "\x7f" for character in target):
        raise ImageAddressInvalid("an https address must not have spaces or control characters in it")
    try:
        encoded = quote(target, safe=_PRINTABLE)
    except UnicodeEncodeError:
        raise ImageAddressInvalid("the address is not valid Unicode") from None
    return WebAddress(authority.lower().removesuffix(":443"), encoded if encoded[0] == "/" else "/" + encoded)
