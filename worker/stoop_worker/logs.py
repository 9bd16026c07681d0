"""The worker's log: one structured line per event, on standard error."""

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

__all__ = ["configure_logs"]

_LONGEST_CHAIN = 16


def configure_logs(level: str, form: str) -> None:
    """Send structured lines of at least `level` to standard error, as `json` or for a `console`.

    `auto` means a console on a terminal and JSON elsewhere. The log gives only the place and the type of an unexpected
    exception, because its message and its variables may contain a caller's text.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_traceback,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # one write a line, so that lines of the front and of its engine's process do not mix
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _LossyStream(sys.stderr))),
    )


class _LossyStream:
    """A stream that drops failed writes, because a full disk or a closed pipe must not stop a worker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _add_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    given = event.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "".join(_places(error)).rstrip()
    return event


def _places(error: BaseException) -> Iterator[str]:
    for number, each in enumerate(reversed(_chain(error))):
        if number:
            yield "which led to:\n"
        yield from traceback.format_tb(each.__traceback__)
        yield f"{type(each).__module__}.{type(each).__qualname__}\n"


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, the latest first and each once, because a chain may be circular."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(chain) < _LONGEST_CHAIN and not any(link is known for known in chain):
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain
