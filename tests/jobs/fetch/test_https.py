"""Images by https from a real TLS server, which behaves in all the ways a hostile one may."""

import asyncio
import contextlib
import dataclasses
import itertools
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stoop_worker.errors import (
    ImageAddressInvalid,
    ImageError,
    ImageForbidden,
    ImageNotFound,
    ImageTimeout,
    ImageTooLarge,
    ImageUndecodable,
    StorageUnavailable,
)
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from stoop_worker.jobs.fetch.public_backend import resolve
from tests.support.authority import Authority
from tests.support.web_server import PUBLIC, Answer, Web, answer, running_web

HOST = "images.example"
IMAGE = f"https://{HOST}/a.jpg"
FAST = HttpsConfig(max_bytes=1000, timeout=10, connect_timeout=5, read_timeout=5)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def web(authority: Authority) -> AsyncIterator[Web]:
    async with running_web(authority.trust, authority.server(HOST, "*.other.example")) as web:
        web.paths = {"/a.jpg": answer(b"image")}
        yield web


def fetcher(web: Web, **changes: Any) -> HttpsFetcher:
    return HttpsFetcher(dataclasses.replace(FAST, **changes), resolve=web.resolve, backend=web, trust=web.trust)


async def fails(
    web: Web, error: type[ImageError], match: str | None = None, *, uri: str = IMAGE, **changes: Any
) -> str:
    with pytest.raises(error, match=match) as raised:
        await fetcher(web, **changes).fetch(uri)
    return str(raised.value)


async def test_the_checked_address_is_connected_to_under_the_hosts_name(web: Web) -> None:
    assert await fetcher(web).fetch(IMAGE) == b"image"
    assert web.connected == [PUBLIC]
    assert web.resolved == [HOST]
    head = web.asked[0].decode().split("\r\n")
    assert head[0] == "GET /a.jpg HTTP/1.1"
    assert {"Host: images.example", "Accept-Encoding: identity", "Connection: close"} <= set(head)


async def test_no_credentials_of_the_machine_are_sent(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hidden@127.0.0.1:1")
    assert await fetcher(web).fetch(IMAGE) == b"image"
    assert b"uthorization" not in web.asked[0]
    assert b"ookie" not in web.asked[0]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["::ffff:10.0.0.1"],
        ["64:ff9b::a00:1"],
        ["fd00:ec2::254"],
        [PUBLIC, "10.0.0.1"],
        ["2606:4700::1111", "::1"],
    ],
)
async def test_a_host_with_any_address_that_is_not_public_is_refused(web: Web, addresses: list[str]) -> None:
    web.hosts[HOST] = addresses
    await fails(web, ImageForbidden, "not on the public internet")
    assert web.connected == []


async def test_a_name_that_changes_its_address_after_the_check_is_harmless(web: Web) -> None:
    """Rebinding: an address that the name gets after the check is never contacted."""
    answers = itertools.chain([[PUBLIC]], itertools.repeat(["127.0.0.1"]))

    async def rebind(host: str) -> list[str]:
        return next(answers)

    rebound = HttpsFetcher(FAST, resolve=rebind, backend=web, trust=web.trust)
    assert await rebound.fetch(IMAGE) == b"image"
    assert web.connected == [PUBLIC]
    with pytest.raises(ImageForbidden):
        await rebound.fetch(IMAGE)


async def test_redirects_are_followed_and_checked_like_the_first_address(web: Web) -> None:
    web.paths = {
        "/1": answer(status="301 Moved", location="/2"),
        "/2": answer(status="302 Found", location="https://cdn.other.example/3"),
        "/3": answer(status="308 Moved", location="a.jpg"),
        "/a.jpg": answer(b"image"),
    }
    assert await fetcher(web).fetch(f"https://{HOST}/1") == b"image"
    assert web.resolved == [HOST, HOST, "cdn.other.example", "cdn.other.example"]


@pytest.mark.parametrize(
    "location",
    [
        "http://images.example/a.jpg",
        "https://169.254.169.254/latest/meta-data/",
        "https://inside.other.example/a.jpg",
        "https://user:hidden@images.example/a.jpg",
        "https://images.example:8443/a.jpg",
        "file:///etc/passwd",
        "",
    ],
)
async def test_a_redirect_to_a_forbidden_address_is_refused(web: Web, location: str) -> None:
    web.hosts["inside.other.example"] = ["10.0.0.1"]
    web.paths = {"/a.jpg": answer(status="302 Found", location=location)}
    assert "hidden" not in await fails(web, ImageForbidden)
    assert len(web.connected) == 1


async def test_redirects_without_end(web: Web) -> None:
    web.paths = {"/a.jpg": answer(status="307 Again", location="/a.jpg")}
    await fails(web, ImageForbidden, "more than 3 redirects")
    assert len(web.connected) == 4


async def test_hosts_can_be_named(web: Web) -> None:
    web.paths = {"/a.jpg": answer(b"image"), "/out": answer(status="302 Found", location="https://x.other.example/")}
    assert await fetcher(web, hosts=("Images.example",)).fetch(IMAGE) == b"image"
    assert await fetcher(web, hosts=("*.other.example",)).fetch("https://x.other.example/a.jpg") == b"image"
    for hosts in (("*.images.example",), ("example",), ("mages.example",), ("*.example.org",)):
        await fails(web, ImageForbidden, "host is not allowed", hosts=hosts)
    await fails(web, ImageForbidden, "not allowed", uri=f"https://{HOST}/out", hosts=(HOST,))


async def test_a_certificate_for_another_host(web: Web) -> None:
    await fails(web, ImageForbidden, "certificate", uri="https://elsewhere.example/a.jpg")
    assert web.asked == []


async def test_a_certificate_of_a_stranger(authority: Authority) -> None:
    async with running_web(ssl.create_default_context(), authority.server(HOST)) as web:
        await fails(web, ImageForbidden, "certificate")


async def test_the_next_address_is_tried_when_one_does_not_answer(web: Web) -> None:
    web.hosts[HOST] = ["2606:4700::1111", PUBLIC]

    web.refusing = {"2606:4700::1111"}
    assert await fetcher(web).fetch(IMAGE) == b"image"
    assert web.connected == ["2606:4700::1111", PUBLIC]


async def test_hosts_that_cannot_be_reached(web: Web) -> None:
    web.hosts[HOST] = socket.gaierror("no such host")
    await fails(web, StorageUnavailable, "there is no host")

    async def never(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    web.hosts[HOST] = [PUBLIC]
    slow = HttpsFetcher(dataclasses.replace(FAST, connect_timeout=0.05), resolve=never, backend=web, trust=web.trust)
    with pytest.raises(ImageTimeout):
        await slow.fetch(IMAGE)
    web.silent = {PUBLIC}
    await fails(web, ImageTimeout, connect_timeout=0.05)
    web.silent, web.refusing = set(), {PUBLIC}
    await fails(web, StorageUnavailable, "does not answer")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("404 Not Found", ImageNotFound),
        ("410 Gone", ImageNotFound),
        ("401 Unauthorized", ImageForbidden),
        ("403 Forbidden", ImageForbidden),
        ("400 Bad Request", ImageAddressInvalid),
        ("418 Teapot", ImageAddressInvalid),
        ("204 No Content", ImageAddressInvalid),
        ("206 Partial", ImageAddressInvalid),
        ("304 Not Modified", ImageAddressInvalid),
        ("408 Timeout", ImageTimeout),
        ("504 Timeout", ImageTimeout),
        ("429 Slow down", StorageUnavailable),
        ("500 Oops", StorageUnavailable),
        ("503 Later", StorageUnavailable),
    ],
)
async def test_each_status_of_the_server_has_its_own_error(web: Web, status: str, error: type[ImageError]) -> None:
    web.paths = {"/a.jpg?sig=hidden": answer(b"words", status=status)}
    assert "hidden" not in await fails(web, error, uri=IMAGE + "?sig=hidden")


def raw(content: bytes) -> Answer:
    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return respond


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "content",
    [
        OK + b"Content-Length: 5\r\n\r\nimage",
        b"HTTP/1.0 200 OK\r\n\r\nimage",
        b"HTTP/1.1 200\r\ncontent-length:  5  \r\nX-Y: \r\n\r\nimage, and what nobody asked for",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nimage",
        OK + b"Transfer-Encoding: Chunked\r\n\r\n2;x=y\r\nim\r\n3\r\nage\r\n0\r\nX: y\r\n\r\n",
        OK + b"X: y\r\n folded\r\nContent-Length: 5\r\n\r\nimage",
        OK + b"Content-Encoding: identity\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nimage",
    ],
)
async def test_answers_that_are_right(web: Web, content: bytes) -> None:
    web.paths = {"/a.jpg": raw(content)}
    assert await fetcher(web).fetch(IMAGE) == b"image"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", StorageUnavailable),
        (b"-ERR unknown command\r\n\r\n", StorageUnavailable),
        (b"HTTP/2 200 OK\r\n\r\nimage", StorageUnavailable),
        (OK, StorageUnavailable),
        (OK + b"X: " + b"y" * 200_000 + b"\r\n\r\n", StorageUnavailable),
        (OK + b"no colon\r\n\r\n", StorageUnavailable),
        (OK + b"Content-Length : 5\r\n\r\nimage", StorageUnavailable),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, StorageUnavailable),
        (OK + b"Content-Length: 6\r\n\r\nimage", StorageUnavailable),
        (OK + b"Content-Length: -5\r\n\r\nimage", StorageUnavailable),
        (OK + b"Content-Length: +5\r\n\r\nimage", StorageUnavailable),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nimage", StorageUnavailable),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nimage", StorageUnavailable),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nimage\r\n", StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nimages\r\n0\r\n\r\n", StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nima", StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 200_000, StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5", StorageUnavailable),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nimage", ImageUndecodable),
        (OK + b"Content-Length: 1001\r\n\r\n", ImageTooLarge),
        (OK + b"Content-Length: 999999999999999\r\n\r\n", ImageTooLarge),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", StorageUnavailable),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100\r\n" + bytes(256) + b"\r\n") * 4, ImageTooLarge),
        (OK + b"\r\n" + bytes(1001), ImageTooLarge),
    ],
)
async def test_answers_that_are_wrong(web: Web, content: bytes, error: type[ImageError]) -> None:
    web.paths = {"/a.jpg": raw(content)}
    await fails(web, error)


def drip(head: bytes) -> Answer:
    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)

    return respond


@pytest.mark.parametrize("head", [b"", OK, OK + b"Content-Length: 1000\r\n\r\n", OK + b"\r\n"])
async def test_a_dripping_answer_meets_the_limit_and_is_hung_up_on(web: Web, head: bytes) -> None:
    web.paths = {"/a.jpg": drip(head)}
    await fails(web, ImageTimeout, "in time", timeout=0.3)
    await asyncio.wait_for(web.hung_up.wait(), 10)


@pytest.mark.parametrize("head", [b"", OK + b"Content-Length: 5\r\n\r\nim"])
async def test_a_silent_server_meets_the_limit_of_one_wait(web: Web, head: bytes) -> None:
    async def fall_silent(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await asyncio.Event().wait()

    web.paths = {"/a.jpg": fall_silent}
    await fails(web, ImageTimeout, "in time", read_timeout=0.1)
    await asyncio.wait_for(web.hung_up.wait(), 10)


async def test_a_cancelled_fetch_hangs_up(web: Web) -> None:
    web.paths = {"/a.jpg": drip(OK + b"Content-Length: 1000\r\n\r\n")}
    fetch = asyncio.ensure_future(fetcher(web).fetch(IMAGE))
    await asyncio.wait_for(web.was_asked.wait(), 10)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    await asyncio.wait_for(web.hung_up.wait(), 10)


async def test_the_fetcher_asks_web_servers_only_where_it_may(web: Web) -> None:
    store = FetchConfig(endpoint="http://127.0.0.1:9", region="nowhere")
    async with Fetcher(store, https=fetcher(web)) as allowed:
        assert await allowed.fetch(IMAGE) == b"image"
    async with Fetcher(store) as careful:
        with pytest.raises(ImageAddressInvalid, match="not enabled"):
            await careful.fetch(IMAGE)


async def test_the_systems_own_resolver() -> None:
    assert set(await resolve("localhost")) <= {"127.0.0.1", "::1"}
