"""A server program as a child process: found in an installed wheel, tied to its parent, awaited until it answers."""

import contextlib
import importlib.metadata
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stoop.errors import StoopError

__all__ = ["ChildServer", "EmbeddedServerError", "ServerInUse", "find_program", "on_a_free_port"]

_Server = TypeVar("_Server")

_START_SECONDS = 15.0
_POLL_SECONDS = 0.01
_PORT_TRIES = 3
# below the ephemeral ports: while a server is down, a client that keeps calling an ephemeral port can get that same
# port as its own, connect to itself, and keep the server from coming back
_PORTS = range(20_000, 32_000)

# Runs in the child before the server: asks the kernel for a SIGKILL when the parent ends, then becomes the server.
# A fresh interpreter rather than preexec_fn, which is unsafe (and warns) once the parent has threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before the server began")
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedServerError(StoopError):
    """An embedded server is not installed, did not start, or is not ours to stop."""


class _EndedEarly(EmbeddedServerError):
    """The server ended before it answered, for example because its port is taken."""


@dataclass(slots=True)
class ChildServer:
    """One server process; `answers` checks that this process, and no other program, serves its port."""

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    answers: Callable[[int], bool]
    start_seconds: float = _START_SECONDS
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and return once it answers. Raises `EmbeddedServerError` if it does not."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                _tied_to_parent(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which may still need the server
            )
        deadline = time.monotonic() + self.start_seconds
        while not self.answers(self.process.pid):
            if self.process.poll() is not None:
                raise _EndedEarly(f"{self.name} ended with {self.process.returncode}: {self.log_tail()}")
            if time.monotonic() > deadline:
                self.end(signal.SIGKILL)
                waited = f"{self.start_seconds:g} s"
                raise EmbeddedServerError(f"{self.name} did not answer in {waited}: {self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def end(self, how: signal.Signals) -> None:
        """Send `how` and wait for the end, then SIGKILL if it does not end. Does nothing once it has ended."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log_tail(self) -> str:
        """Return the end of the process's log."""
        return self.log.read_text(errors="replace")[-1000:].strip() or f"nothing in {self.log}"


@dataclass(slots=True, kw_only=True)
class ServerInUse:
    """A server: our child process, or one given by the environment (then `child` is None)."""

    child: ChildServer | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The server's process id; None if the server is not ours."""
        return self.child.process.pid if self.child and self.child.process else None

    def kill(self) -> None:
        """End the server at once, as a crash would. Raises `EmbeddedServerError` if it is not ours."""
        self._ours().end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server if it runs, and start it on the same port and files."""
        self.kill()
        self._ours().start()

    def stop(self) -> None:
        """Ask the server to end, and wait for it. Does nothing if it is not ours or has ended."""
        if self.child:
            self.child.end(signal.SIGTERM)

    def _ours(self) -> ChildServer:
        if self.child is None:
            raise EmbeddedServerError("this server was given by the environment, so it is not ours to stop")
        return self.child


def find_program(distribution: str, name: str) -> str | None:
    """Return the path of an installed distribution's program, even if it is not on the PATH."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name in (name, f"{name}.exe")]
    return next((str(path.absolute()) for path in found if os.access(path, os.X_OK)), None)


def on_a_free_port(start: Callable[[int], _Server]) -> _Server:
    """Start a server on a free port. Another program may take the port first, so this tries a few."""
    for _ in range(_PORT_TRIES - 1):
        with contextlib.suppress(_EndedEarly):
            return start(_free_port())
    return start(_free_port())


def _free_port() -> int:
    for _ in range(_PORT_TRIES * 10):
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EmbeddedServerError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _tied_to_parent(command: list[str]) -> list[str]:
    if sys.platform != "linux":
        return command  # only Linux offers this; elsewhere the context manager still ends the server
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
