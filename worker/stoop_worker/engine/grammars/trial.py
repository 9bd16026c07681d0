"""Compiles grammars in a process of its own first.

The compiler is native code that nothing can interrupt: a schema of a few kilobytes can keep it busy for hours, or
exhaust its stack. Such a grammar ends only that process.
"""

import contextlib
import json
import subprocess
import sys
import weakref
from threading import Lock, Timer
from typing import Final

__all__ = ["Trial", "TrialUnavailable"]

_PROGRAM: Final = (sys.executable, "-m", "stoop_worker.engine.grammars.trial_program")
_REFUSED: Final = "it takes too much work to compile, or is nested too deeply"
_LAST_RESORT_SECONDS: Final = 60.0  # the process limits its own processor time; this limit is for one that hangs


class TrialUnavailable(Exception):
    """No process could be started, so that nothing is known about the grammar."""


class Trial:
    """Tries grammars one after another in one process, which starts with the first and again after each crash."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ending: weakref.finalize[[subprocess.Popen[str]], Trial] | None = (
            None  # called at the latest with the last reference
        )

    def refusal(self, grammar: str) -> str | None:
        """Return why a grammar does not compile; None if it does. Any thread may call it.

        Raises `TrialUnavailable`.
        """
        with self._lock:
            process = self._running() or self._start()
            answer = _answer(process, json.dumps(grammar))
            if answer is None:
                self._end()
        if answer is None:
            return _REFUSED
        reason: str | None = json.loads(answer)
        return reason

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[str]:
        self._process = _started()
        self._ending = weakref.finalize(self, _end, self._process)
        return self._process

    def _end(self) -> None:
        if self._ending is not None:
            self._ending()
        self._process = self._ending = None

    def _running(self) -> subprocess.Popen[str] | None:
        """Return the process, unless it has ended since its last answer: no grammar is to blame for that."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        return self._process


def _started() -> subprocess.Popen[str]:
    # it ends when its input does, which the system closes with this process
    try:
        process = subprocess.Popen(
            _PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError as error:
        raise TrialUnavailable(f"the process that tries grammars does not start: {error.strerror}") from error
    if _answer(process) is None:
        raise TrialUnavailable(f"the process that tries grammars does not start: it ended by {process.returncode}")
    return process


def _answer(process: subprocess.Popen[str], line: str | None = None) -> str | None:
    """Send a line, if there is one, and return the next answer; None if the process has ended without one."""
    assert process.stdin is not None and process.stdout is not None
    last_resort = Timer(_LAST_RESORT_SECONDS, process.kill)
    last_resort.daemon = True
    last_resort.start()
    try:
        if line is not None:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    finally:
        last_resort.cancel()
    if not answer:
        _end(process)
    return answer or None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            with contextlib.suppress(BrokenPipeError):  # what it had not read yet
                stream.close()
