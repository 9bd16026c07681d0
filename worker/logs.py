"""How the worker's log looks: one structured line an event, on standard error."""

import logging
import sys
import traceback
from collections.abc import Iterator

import structlog
from structlog.typing import EventDict, WrappedLogger

__all__ = ["configure_logs"]


def configure_logs(level: str, form: str) -> None:
    """Send structured lines of at least `level` to standard error, as `json` or for a `console`.

    `auto` is a console on a terminal and JSON elsewhere. Of an exception that was not foreseen it says the place and
    the type: its message and the values of variables may be a caller's text.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _say_where,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _say_where(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    given = event.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "".join(_places(error)).rstrip()
    return event


def _places(error: BaseException) -> Iterator[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _places(before)
        yield "which led to:\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"
