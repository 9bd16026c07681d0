"""The sidecar process. It reads the worker's messages on standard input, answers on standard output, ends with it."""

import logging
import os
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final

import msgspec
from celery import Celery

from stoop_schemas import celery as dialect
from stoop_worker.celery.ending import Ending, Redelivery
from stoop_worker.celery.mailbox import Mailbox
from stoop_worker.celery.sidecar import SidecarSettings
from stoop_worker.celery.tracer import TRANSIENT, Tracer
from stoop_worker.jobs.backoff import Backoff

__all__ = ["WorkerPipe", "make_app", "serve"]

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 2.0
_LAST_DELIVERY_SECONDS: Final = 0.8  # less than the shortest lease
_FIRST_WAIT_SECONDS: Final = 0.2


class _Deliver(msgspec.Struct):
    deliver: int
    endings: list[tuple[Redelivery, Ending]]


class WorkerPipe:
    """Sends messages to the worker from any thread, and matches answers to questions."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._answers: dict[int, SimpleQueue[Any]] = {}
        self._number = 0

    def send(self, message: object) -> None:
        """Send one message."""
        with self._lock:
            self._out.write(msgspec.json.encode(message) + b"\n")
            self._out.flush()

    def ask(self, question: str) -> Any:
        """Ask the worker, and return its answer; None if none comes in time."""
        with self._lock:
            self._number += 1
            number = self._number
        answer = self._answers[number] = SimpleQueue()
        try:
            self.send({"ask": number, "question": question})
            return answer.get(timeout=_ANSWER_SECONDS)
        except Empty:
            return None
        finally:
            del self._answers[number]

    def answer(self, number: int, value: Any) -> None:
        """Pass an answer on to the thread that asked."""
        if waiting := self._answers.get(number):
            waiting.put(value)


def make_app(settings: SidecarSettings) -> Celery:
    """Make the worker's Celery application: it uses only JSON, and sends tasks for Stoop's queues to the lanes."""
    app = Celery("stoop", broker=_celery_url(settings.broker), backend=_celery_url(settings.backend))
    app.conf.update(
        broker_transport=dialect.TRANSPORT,
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_expires=settings.ttl,
        task_routes=[dialect.ROUTES, {pattern: {"queue": queue} for pattern, queue in settings.routes.items()}],
        # rather wait than lose a follow-up task
        task_publish_retry_policy={"max_retries": 20, "interval_start": 0, "interval_step": 0.5, "interval_max": 5},
        broker_pool_limit=4,
    )
    app.set_default()  # in every thread
    return app


def serve() -> None:
    """Serve until the worker closes the pipe, or dies."""
    lines, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's print must not reach the worker as a message
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    settings = msgspec.json.decode(lines.readline(), type=SidecarSettings)
    app, worker = make_app(settings), WorkerPipe(out)
    batches: SimpleQueue[_Deliver] = SimpleQueue()
    delivering = threading.Lock()
    arguments = (Tracer(app, settings.hostname), batches, worker, delivering)
    threading.Thread(target=_deliver_batches, args=arguments, daemon=True).start()
    mailbox = Mailbox(app, settings.hostname, ask=worker.ask, revoke=lambda ids: worker.send({"revoke": ids}))
    threading.Thread(target=mailbox.run, daemon=True).start()
    for line in lines:
        message = msgspec.json.decode(line)
        if "deliver" in message:
            batches.put(msgspec.convert(message, _Deliver))
        else:
            worker.answer(message["answer"], message["value"])
    # complete the delivery in progress; another worker takes the other endings over when this worker's lease ends
    delivering.acquire(timeout=_LAST_DELIVERY_SECONDS)
    os._exit(0)


def _deliver_batches(
    tracer: Tracer, batches: "SimpleQueue[_Deliver]", worker: WorkerPipe, delivering: threading.Lock
) -> None:
    while True:
        batch, refusals = batches.get(), []
        for redelivery, ending in batch.endings:
            with delivering:
                refusals.append(_deliver(tracer, ending, redelivery))
        worker.send({"delivered": batch.deliver, "refusals": refusals})


def _deliver(tracer: Tracer, ending: Ending, redelivery: Redelivery) -> str:
    """Deliver one ending, however long that takes; return the reason if Celery refuses it, else ""."""
    backoff = Backoff(first=_FIRST_WAIT_SECONDS)
    while True:
        try:
            tracer.finish(ending, redelivery)
            return ""
        except TRANSIENT as error:
            log.warning("the ending of task %s waits: %s", ending.id, type(error).__name__)
        except Exception as error:
            log.exception("the ending of task %s was refused", ending.id)
            return f"{type(error).__name__}: {error}"
        if redelivery is Redelivery.FIRST:
            redelivery = Redelivery.AGAIN
        time.sleep(backoff.next())


def _celery_url(url: str) -> str:
    """Return the URL in Celery's form, which checks a server's certificate only if the URL asks for it."""
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=CERT_REQUIRED"
    if url.startswith("unix://"):
        return f"redis+socket://{url.removeprefix('unix://')}"
    return url
