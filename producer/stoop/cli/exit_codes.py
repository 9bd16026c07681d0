"""Exit codes and error output of failed commands: one line or one JSON object."""

import contextlib
from collections.abc import Iterator

import typer

from stoop.cli import render
from stoop.errors import (
    AudioUnreadable,
    ConfigError,
    IdempotencyConflict,
    ImageUnreadable,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    NotAQueue,
    NotFound,
    OutputGone,
    OutputUnreadable,
    StoopError,
    TimedOut,
)

__all__ = ["FAILED", "USAGE", "exit_on_error"]

FAILED = 1
USAGE = 2
_UNREACHABLE, _TIMED_OUT = 3, 4
_CODES: dict[type[StoopError], int] = {
    JobFailed: FAILED,
    JobCancelled: FAILED,
    JobExpired: FAILED,
    NotFound: FAILED,
    OutputGone: FAILED,
    OutputUnreadable: FAILED,
    AudioUnreadable: USAGE,
    ConfigError: USAGE,
    IdempotencyConflict: USAGE,
    ImageUnreadable: USAGE,
    InvalidJob: USAGE,
    NotAQueue: USAGE,
    TimedOut: _TIMED_OUT,
}


@contextlib.contextmanager
def exit_on_error(*, as_json: bool) -> Iterator[None]:
    """Print the client's error as one line or one JSON object, and exit with its code."""
    try:
        yield
    except StoopError as error:
        exit_code = _CODES.get(type(error), _UNREACHABLE)
        render.print_error(error, exit_code=exit_code, as_json=as_json)
        raise typer.Exit(exit_code) from None
