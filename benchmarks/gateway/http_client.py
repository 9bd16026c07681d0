"""One kept connection to the gateway. A full HTTP client would cost more CPU than the gateway that it measures."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Connection"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of a response, and the seconds until its first piece and its end."""

    status: int
    first: float
    whole: float


class Connection:
    """Asks one question after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, body: Any, method: str = "POST") -> Answer:
        """Send a request, and read the whole response."""
        began = time.perf_counter()
        status, headers = await self.begin(path, body, method)
        assert self._reader is not None
        if "content-length" in headers:
            await self._reader.readexactly(int(headers["content-length"]))
            first = time.perf_counter()
        else:
            first = 0.0
            while size := int(await self._reader.readline(), 16):
                first = first or time.perf_counter()
                await self._reader.readexactly(size + 2)
            await self._reader.readline()
        return Answer(status, first - began, time.perf_counter() - began)

    async def begin(self, path: str, body: Any, method: str = "POST") -> tuple[int, dict[str, str]]:
        """Send a request, and return the status and the headers of the response."""
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        status = int((await self._reader.readline()).split()[1])
        headers = {}
        while (line := (await self._reader.readline()).decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    async def line(self) -> bytes:
        """Return the next line of the body."""
        assert self._reader is not None
        return await self._reader.readline()

    def close(self) -> None:
        """Disconnect."""
        if self._writer is not None:
            self._writer.close()
