"""Finishes tasks with Celery's own tracer, which runs a task that only returns the answer and does the rest."""

from typing import Any, Final

from celery import Celery, Task
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import BackendError, TaskRevokedError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from stoop_schemas import celery as dialect
from stoop_schemas.skills import skills
from stoop_worker.celery.ending import Ending, Redelivery

__all__ = ["TRANSIENT", "Tracer"]

TRANSIENT: Final = (OperationalError, BackendError, RedisError, OSError)
"""The errors that `Tracer.finish` raises while broker or backend is away; finishing again later completes the task."""

_CONNECT: Final = {"interval_start": 0.1, "interval_step": 0.5, "interval_max": 5.0}


class Tracer:
    """Stores results, counts chords and sends follow-up tasks for the tasks that this worker's jobs have ended."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._ending: Ending | None = None
        self._trace = {task.name: build_tracer(task.name, task, app=app, hostname=hostname) for task in self._tasks()}

    def finish(self, ending: Ending, redelivery: Redelivery) -> None:
        """Finish one task; waits while the broker is away, and raises if Celery cannot finish it.

        The tracer sends follow-up tasks, then stores the result, then counts for the chord. If the result is already
        stored, only the count may be missing.
        """
        with self._app.pool.acquire(block=True) as connection:
            connection.ensure_connection(**_CONNECT)
        request = {**ending.request, "hostname": self._hostname}
        if redelivery is Redelivery.COUNT or (redelivery is Redelivery.AGAIN and self._is_stored(ending)):
            self._count(ending, Context(request, args=(), kwargs={}))
        elif ending.status == "SUCCESS" or (ending.status == "FAILURE" and ending.task in self._trace):
            self._ending = ending
            _check(self._trace[ending.task](ending.id, (), {}, request))
        else:
            self._end(ending, Context(request, args=(), kwargs={}))

    def _end(self, ending: Ending, context: Context) -> None:
        """End a task that the tracer does not run, because it was revoked or is not one of ours."""
        wanted, backend = not context.ignore_result, self._app.backend
        if ending.status == "REVOKED":
            backend.mark_as_revoked(ending.id, ending.message, request=context, store_result=wanted)
        else:
            backend.mark_as_failure(ending.id, _failure(ending), request=context, store_result=wanted)

    def _is_stored(self, ending: Ending) -> bool:
        return ending.status == "SUCCESS" and self._app.AsyncResult(ending.id).state == "SUCCESS"

    def _count(self, ending: Ending, context: Context) -> None:
        if not context.chord:
            return
        ends = {"SUCCESS": ending.answer, "REVOKED": TaskRevokedError(ending.message)}
        self._app.backend.on_chord_part_return(context, ending.status, ends.get(ending.status, _failure(ending)))

    def _tasks(self) -> list[Task]:
        options: dict[str, Any] = {"throws": (dialect.SkillFailed,), "typing": False}
        return [self._app.task(self._answer, name=dialect.task(skill), **options) for skill in skills()]

    def _answer(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        ending = self._ending
        assert ending is not None, "one ending at a time"
        if ending.status == "FAILURE":
            raise _failure(ending)
        return ending.answer


def _check(traced: Any) -> None:
    """Raise a passing error that the tracer caught, because the task is then not finished."""
    caught = traced.info.retval if traced.info else None
    if isinstance(caught, TRANSIENT):
        raise caught


def _failure(ending: Ending) -> dialect.SkillFailed:
    return dialect.SkillFailed(ending.code, ending.message)
