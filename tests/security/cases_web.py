"""Images by https, from hostile servers and names."""

import asyncio
import contextlib
import dataclasses
import gzip
import socket
from collections.abc import Mapping, Sequence

from tests.security.case import HOST, MARK, Case, job
from tests.security.pictures import png
from tests.support.web_server import Answer, answer

__all__ = ["WEB"]

OK = b"HTTP/1.1 200 OK\r\n"


def raw(content: bytes) -> Answer:
    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return respond


def drip(head: bytes) -> Answer:
    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.05)

    return respond


def to(name: str, ends: str, uri: str, **hosts: Sequence[str] | OSError) -> Case:
    made = job(name, ends, image=uri, max_attempts=1)
    known: Mapping[str, Sequence[str] | OSError] = {
        host.replace("_", ".") + ".example": ips for host, ips in hosts.items()
    }
    return Case(name, ends, made.packed, made.job_id, hosts=known)


def page(name: str, ends: str, response: Answer, last: str = "") -> Case:
    path = "/" + "".join(c if c.isalnum() and c.isascii() else "-" for c in name)
    made = job(name, ends, image=f"https://{HOST}{path}?token={MARK}", max_attempts=1)
    return Case(name, ends, made.packed, made.job_id, last=last, pages={f"{path}?token={MARK}": response})


def redirect(name: str, location: str) -> Case:
    return page(name, "image_forbidden", answer(status="302 Found", location=location))


def retried(name: str, last: str, response: Answer) -> Case:
    return page(name, "attempts_exhausted", response, last)


WEB: list[Case] = [
    to("loopback by number", "invalid_argument", "https://127.0.0.1/a.png"),
    to("loopback as one decimal number", "invalid_argument", "https://2130706433/a.png"),
    to("loopback in octal", "invalid_argument", "https://0177.0.0.1/a.png"),
    to("loopback in hexadecimal", "invalid_argument", "https://0x7f000001/a.png"),
    to("loopback in short", "invalid_argument", "https://127.1/a.png"),
    to("loopback in wide digits", "invalid_argument", "https://１２７.０.０.１/a.png"),
    to("loopback in IPv6", "invalid_argument", "https://[::1]/a.png"),
    to("metadata mapped into IPv6", "invalid_argument", "https://[::ffff:169.254.169.254]/a.png"),
    to("localhost by name", "invalid_argument", "https://localhost/a.png"),
    to("a user and password", "invalid_argument", f"https://{MARK}:{MARK}@{HOST}/a.png"),
    to("a host behind an at sign", "invalid_argument", f"https://{HOST}@169.254.169.254/a.png"),
    to("a host behind a backslash", "invalid_argument", f"https://{HOST}\\@169.254.169.254/a.png"),
    to("another port", "invalid_argument", f"https://{HOST}:6379/a.png"),
    to("a line break in the address", "invalid_argument", f"https://{HOST}/a.png HTTP/1.1\r\nHost: x"),
    to("a name for loopback", "image_forbidden", "https://loop.example/a.png", loop=["127.0.0.1"]),
    to("a name for a private network", "image_forbidden", "https://inside.example/a.png", inside=["10.1.2.3"]),
    to("a name for the metadata service", "image_forbidden", "https://meta.example/a.png", meta=["169.254.169.254"]),
    to(
        "a name for the metadata service in IPv6",
        "image_forbidden",
        "https://meta6.example/a.png",
        meta6=["fd00:ec2::254"],
    ),
    to("a name for a carrier's network", "image_forbidden", "https://cgnat.example/a.png", cgnat=["100.100.100.200"]),
    to("a name for a mapped address", "image_forbidden", "https://mapped.example/a.png", mapped=["::ffff:127.0.0.1"]),
    to("a name for NAT64 of a private address", "image_forbidden", "https://nat.example/a.png", nat=["64:ff9b::a00:1"]),
    to("a name for 6to4 of loopback", "image_forbidden", "https://six.example/a.png", six=["2002:7f00:1::1"]),
    to("a name for a group of hosts", "image_forbidden", "https://many.example/a.png", many=["224.0.0.1"]),
    to("a name for no address", "image_forbidden", "https://zero.example/a.png", zero=["0.0.0.0"]),
    to(
        "a name for one public and one private address",
        "image_forbidden",
        "https://two.example/a.png",
        two=["93.184.215.14", "10.0.0.1"],
    ),
    to("a host that is not allowed", "image_forbidden", "https://elsewhere.org/a.png"),
    dataclasses.replace(
        to("a name that nobody knows", "attempts_exhausted", "https://gone.example/a.png", gone=socket.gaierror("no")),
        last="storage_unavailable",
    ),
    to("a certificate of another host", "image_forbidden", "https://other.example/a.png"),
    redirect("a redirect to the metadata service", "https://169.254.169.254/latest/meta-data/"),
    redirect("a redirect to plain http", f"http://{HOST}/a.png"),
    redirect("a redirect to a file", "file:///etc/passwd"),
    redirect("a redirect to a name for loopback", "https://loop.example/a.png"),
    redirect("a redirect with a password", f"https://{MARK}:{MARK}@{HOST}/a.png"),
    redirect("redirects without end", "?token=" + MARK),
    retried("a head that drips", "image_timeout", drip(b"")),
    retried("a body that drips", "image_timeout", drip(OK + b"Content-Length: 1000\r\n\r\n")),
    retried("a body shorter than announced", "storage_unavailable", raw(OK + b"Content-Length: 99\r\n\r\nimage")),
    retried("two lengths", "storage_unavailable", raw(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nimage")),
    page(
        "a length and chunks",
        "image_undecodable",
        raw(OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ),
    retried("an endless head", "storage_unavailable", raw(OK + b"X: " + b"x" * 100_000)),
    retried("an answer of Redis", "storage_unavailable", raw(b"-ERR unknown command 'GET'\r\n\r\n")),
    page("a terabyte announced", "image_too_large", raw(OK + b"Content-Length: 999999999999\r\n\r\n")),
    page(
        "chunks without end",
        "image_too_large",
        raw(OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + bytes(1 << 16) + b"\r\n") * 20),
    ),
    page("a compressed answer", "image_undecodable", answer(gzip.compress(bytes(1 << 20)), content_encoding="gzip")),
    page("a web page that says it is an image", "image_undecodable", answer(b"<html>", content_type="image/png")),
    page("an image that says it is a web page", "completed", answer(png(), content_type="text/html")),
    page("a page that asks for a password", "image_forbidden", answer(status="401 Unauthorized")),
]
