"""The child's side: builds an engine, feeds it the front's requests, and reports its outputs until either side ends."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import structlog

from stoop_worker.engine.request import Deliver, EnginePort, Output
from stoop_worker.engine_process.frames import receive, write
from stoop_worker.engine_process.pixels import map_images, map_shared
from stoop_worker.engine_process.protocol import Abort, EngineSettings, Loading, NotReady, Ready, Report, Submit
from stoop_worker.errors import EngineFault, WorkerError
from stoop_worker.figures import Figures
from stoop_worker.garbage import keep_what_is_loaded

__all__ = ["Build", "RunningEngine", "serve_engine"]

log = structlog.get_logger(__name__)

_FIGURES_SECONDS = 0.1  # the least time between reports of the figures
_REPORT_SECONDS = 0.1  # the period of reports without outputs, which carry the progress
_END_SECONDS = 5.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_OOM_SCORE = "500"


class RunningEngine(EnginePort, Protocol):
    """An engine with its own loop."""

    @property
    def fault(self) -> BaseException | None:
        """The exception that ended the loop; None while it runs or after `stop`."""

    @property
    def figures(self) -> Figures:
        """Counts of the engine's work and holdings, by name."""

    def start(self) -> None:
        """Start the loop."""

    def stop(self) -> None:
        """End the loop after its current step."""


Build = Callable[[EngineSettings, Deliver, Callable[[Loading], None]], tuple[RunningEngine, Ready]]
"""Builds the engine and has it answer once, reporting how far its loading is; raises `WorkerError`."""


def serve_engine(build: Build) -> NoReturn:
    """Run an engine for the parent process, and end with it.

    The command line ends with the parent's process id, the socket to read from and the pipe to write to.
    """
    parent, receiving, sending = map(int, sys.argv[-3:])
    _tie_to(parent)
    for descriptor in (receiving, sending):
        os.set_inheritable(descriptor, False)
    code = 1
    # `open`, because a descriptor is not a path
    connection, pipe = socket.socket(fileno=receiving), open(sending, "wb")  # noqa: PTH123, SIM115
    # if the parent was killed, closing the pipe fails, because it writes what the parent has not read
    with contextlib.suppress(BrokenPipeError), connection, pipe:
        code = _serve(build, connection, pipe)
    sys.stderr.flush()
    os._exit(code)  # a broken device may hang an orderly exit


def _serve(build: Build, connection: socket.socket, pipe: BinaryIO) -> int:
    outbox: SimpleQueue[list[Output]] = SimpleQueue()
    settings, file = receive(connection)
    shared = None if file is None else map_shared(file)
    try:
        engine, ready = build(settings, lambda outputs: outbox.put(list(outputs)), partial(write, pipe))
    except WorkerError as error:
        write(pipe, NotReady.of(error))
        return 2
    keep_what_is_loaded()
    write(pipe, ready)
    engine.start()
    threading.Thread(target=_feed, args=(connection, engine, shared), name="feed", daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        _report(pipe, engine, outbox)
    if engine.fault is None:
        return 0
    log.error("the engine has ended by a fault", exc_info=engine.fault)
    return 1


def _feed(connection: socket.socket, engine: RunningEngine, shared: npt.NDArray[np.uint8] | None) -> None:
    """Pass requests, with their images from the shared file or others, and aborts to the engine; stop it at the end."""
    with contextlib.suppress(EOFError, ConnectionError, EngineFault):
        while True:
            value, file = receive(connection)
            match value:
                case Submit(request, layouts):
                    engine.submit(replace(request, media=map_images(layouts, file, shared)))
                case Abort(id=request_id):
                    engine.abort(request_id)
    last_resort = threading.Timer(_END_SECONDS, os._exit, [1])  # in case a step hangs
    last_resort.daemon = True
    last_resort.start()
    engine.stop()


def _report(pipe: BinaryIO, engine: RunningEngine, outbox: "SimpleQueue[list[Output]]") -> None:
    """Report the engine's outputs, progress and figures, until it has ended and all outputs are reported."""
    due = 0.0
    while True:
        alive = engine.alive  # read first, so that outputs from before the end are still gathered
        outputs = _gather(outbox)
        figures = engine.figures if time.monotonic() >= due or not alive else None
        if figures is not None:
            due = time.monotonic() + _FIGURES_SECONDS
        write(pipe, Report(engine.progress, outputs, figures))
        if not alive and not outputs:
            return


def _gather(outbox: "SimpleQueue[list[Output]]") -> list[Output]:
    outputs: list[Output] = []
    with contextlib.suppress(Empty):
        outputs += outbox.get(timeout=_REPORT_SECONDS)
        while True:
            outputs += outbox.get_nowait()
    return outputs


def _tie_to(parent: int) -> None:
    """Die with the parent, leave the worker's signals to it, and die before it if memory runs out."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before this process was tied to it
