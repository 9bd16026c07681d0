"""An engine in the process of a command: logs to standard error, and one kind of error."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.errors import WorkerError
from stoop_worker.local.engine import LocalEngine
from stoop_worker.logs import configure_logs

__all__ = ["CommandEngine", "open_engine"]


@dataclass(frozen=True, slots=True)
class CommandEngine:
    """Answers like the client. Every failure is a `Rejected`, including one of the image; `timeout` is in seconds."""

    engine: LocalEngine
    timeout: float | None = None

    async def query(
        self, image: str | None, question: str, *, stream: bool = False, settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Answer a question: {"answer": str, or with `stream` an async iterator}."""
        with _rejected():
            async with asyncio.timeout(self.timeout):
                answer = await self.engine.query(image, question, stream=stream, settings=settings)
        return {"answer": self._pieces(answer["answer"])} if stream else answer

    async def _pieces(self, text: AsyncIterator[str]) -> AsyncIterator[str]:
        with _rejected():
            async with asyncio.timeout(self.timeout):
                async for piece in text:
                    yield piece


@contextlib.asynccontextmanager
async def open_engine(model: str, *, timeout: float | None = None) -> AsyncIterator[CommandEngine]:
    """Load a model for a command; raises `Rejected`."""
    configure_logs("warning", "auto")
    async with contextlib.AsyncExitStack() as stack:
        with _rejected():
            engine = await stack.enter_async_context(LocalEngine(model))
        yield CommandEngine(engine, timeout)


@contextlib.contextmanager
def _rejected() -> Iterator[None]:
    try:
        yield
    except WorkerError as error:
        raise Rejected(FailureCode.INVALID_ARGUMENT, str(error)) from error
    except TimeoutError:
        raise Rejected(FailureCode.DEADLINE_EXCEEDED, "no answer in time: see --timeout") from None
