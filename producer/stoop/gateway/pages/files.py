"""Serves the static files of the pages. Their headers allow a page nothing but these files and this gateway."""

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from starlette.responses import Response

from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError

__all__ = ["show_dashboard", "show_file", "show_playground"]

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # pictures are read with the API key, and shown from memory
        "img-src 'self' blob: data:",
        # a recording is heard from memory, before it is sent
        "media-src blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)

_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    # a new version's files must not meet an old version's page
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


async def show_playground(call: Call) -> Response:
    """Answer `GET /`."""
    return _show(call, "playground.html")


async def show_dashboard(call: Call) -> Response:
    """Answer `GET /dashboard`."""
    return _show(call, "dashboard.html")


async def show_file(call: Call) -> Response:
    """Answer `GET /pages/{name}`; raise an `ApiError` (404) for any other name than those of the pages."""
    return _show(call, call.request.path_params["name"])


def _show(call: Call, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise ApiError(404, "unknown_url", "there is no such file")
    headers = {**call.headers, **_HEADERS, "etag": file.etag}
    if call.header("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


@functools.cache
def _files() -> dict[str, _File]:
    folder = resources.files("stoop.gateway.pages") / "static"
    return {entry.name: _file(entry.name, entry.read_bytes()) for entry in folder.iterdir() if entry.is_file()}


def _file(name: str, content: bytes) -> _File:
    return _File(content, _TYPES[name[name.rindex(".") :]], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
