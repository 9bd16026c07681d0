"""The process that has Celery in it: hears the worker on standard input, answers on standard output, ends with it."""

import logging
import os
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final

import msgspec
from celery import Celery

from schemas import celery as dialect
from worker.celery.clerk import Desk
from worker.celery.mailbox import Mailbox
from worker.celery.note import Note, Telling
from worker.celery.tracer import TRANSIENT, Tracer

__all__ = ["Line", "make_app", "serve"]

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 2.0
_HALF_TOLD_SECONDS: Final = 0.8  # less than the shortest lease
_SHORTEST_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 5.0


class _Tell(msgspec.Struct):
    tell: int
    notes: list[tuple[Telling, Note]]


class Line:
    """The line to the worker: words go out whole, and a question waits for its answer."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._answers: dict[int, SimpleQueue[Any]] = {}
        self._number = 0

    def say(self, word: object) -> None:
        """Send one word."""
        with self._lock:
            self._out.write(msgspec.json.encode(word) + b"\n")
            self._out.flush()

    def ask(self, what: str) -> Any:
        """Ask the worker, and return its answer; None if it gives none in time."""
        with self._lock:
            self._number += 1
            number = self._number
        answer = self._answers[number] = SimpleQueue()
        try:
            self.say({"ask": number, "what": what})
            return answer.get(timeout=_ANSWER_SECONDS)
        except Empty:
            return None
        finally:
            del self._answers[number]

    def answered(self, number: int, value: Any) -> None:
        """Pass an answer on to who waits for it."""
        if waiting := self._answers.get(number):
            waiting.put(value)


def make_app(desk: Desk) -> Celery:
    """Make the application that speaks for the worker: JSON alone, and queues of ours go to the lanes."""
    app = Celery("stoop", broker=_celery_url(desk.broker), backend=_celery_url(desk.backend))
    app.conf.update(
        broker_transport=dialect.TRANSPORT,
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_expires=desk.ttl,
        task_routes=[dialect.ROUTES, {pattern: {"queue": queue} for pattern, queue in desk.routes.items()}],
        # the worker waits rather than drops what follows a task
        task_publish_retry_policy={"max_retries": 20, "interval_start": 0, "interval_step": 0.5, "interval_max": 5},
        broker_pool_limit=4,
    )
    app.set_default()  # in every thread
    return app


def serve() -> None:
    """Serve until the worker closes the line, or dies."""
    hear, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for a word
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    desk = msgspec.json.decode(hear.readline(), type=Desk)
    app, line = make_app(desk), Line(out)
    notes: SimpleQueue[_Tell] = SimpleQueue()
    telling = threading.Lock()
    arguments = (Tracer(app, desk.hostname), notes, line, telling)
    threading.Thread(target=_tell_all, args=arguments, daemon=True).start()
    mailbox = Mailbox(app, desk.hostname, ask=line.ask, revoke=lambda ids: line.say({"revoke": ids}))
    threading.Thread(target=mailbox.run, daemon=True).start()
    for spoken in hear:
        word = msgspec.json.decode(spoken)
        if "tell" in word:
            notes.put(msgspec.convert(word, _Tell))
        else:
            line.answered(word["answer"], word["value"])
    # a note that is half told is told to its end, the others are for another worker: it has them when the lease ends
    telling.acquire(timeout=_HALF_TOLD_SECONDS)
    os._exit(0)


def _tell_all(tracer: Tracer, notes: "SimpleQueue[_Tell]", line: Line, at_it: threading.Lock) -> None:
    while True:
        word, refused = notes.get(), []
        for telling, note in word.notes:
            with at_it:
                refused.append(_tell(tracer, note, telling))
        line.say({"told": word.tell, "refused": refused})


def _tell(tracer: Tracer, note: Note, telling: Telling) -> str:
    """Tell one note, however long that takes; return why it cannot be told, if so."""
    pause = _SHORTEST_SECONDS
    while True:
        try:
            tracer.tell(note, telling)
            return ""
        except TRANSIENT as error:
            log.warning("task %s is told later: %s", note.id, type(error).__name__)
        except Exception as error:
            log.exception("task %s", note.id)
            return f"{type(error).__name__}: {error}"
        if telling is Telling.FIRST:
            telling = Telling.AGAIN
        time.sleep(pause)
        pause = min(_LONGEST_SECONDS, 2 * pause)


def _celery_url(url: str) -> str:
    """Return the URL in Celery's words: it wants to be told to check a server's certificate."""
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=CERT_REQUIRED"
    if url.startswith("unix://"):
        return f"redis+socket://{url.removeprefix('unix://')}"
    return url
