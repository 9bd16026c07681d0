"""How the worker's log looks: one structured line an event, on standard error."""

import logging
import sys

import structlog

__all__ = ["configure_logs"]


def configure_logs(level: str, form: str) -> None:
    """Send structured lines of at least `level` to standard error, as `json` or for a `console`.

    `auto` is a console on a terminal and JSON elsewhere.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    tail = [] if console else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *tail,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
