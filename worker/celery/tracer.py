"""A task's end in Celery's own hands: its tracer runs a task that only gives the answer, and does the rest."""

from typing import Any, Final

from celery import Celery, Task
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import BackendError, TaskRevokedError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from schemas import celery as dialect
from schemas.skill import Skill
from worker.celery.note import Note, Telling

__all__ = ["TRANSIENT", "Tracer"]

TRANSIENT: Final = (OperationalError, BackendError, RedisError, OSError)
"""What `Tracer.tell` raises when broker or backend is away: told again later, a note is told whole."""

_CONNECT: Final = {"interval_start": 0.1, "interval_step": 0.5, "interval_max": 5.0}


class Tracer:
    """Stores results, counts chords, sends what follows, for tasks that this worker's jobs have answered."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._note: Note | None = None
        self._trace = {task.name: build_tracer(task.name, task, app=app, hostname=hostname) for task in self._tasks()}

    def tell(self, note: Note, telling: Telling) -> None:
        """Bring one task to its end; waits while the broker is away, and raises for what Celery cannot do.

        The tracer sends what follows before it stores the result, and counts for the chord after that: where the
        result is stored already, only the count may be missing.
        """
        with self._app.pool.acquire(block=True) as connection:
            connection.ensure_connection(**_CONNECT)
        request = {**note.request, "hostname": self._hostname}
        if telling is Telling.COUNT or (telling is Telling.AGAIN and self._is_stored(note)):
            self._count(note, Context(request, args=(), kwargs={}))
        elif note.status == "SUCCESS" or (note.status == "FAILURE" and note.task in self._trace):
            self._note = note
            _check(self._trace[note.task](note.id, (), {}, request))
        else:
            self._end(note, Context(request, args=(), kwargs={}))

    def _end(self, note: Note, context: Context) -> None:
        """End a task that nothing runs: it was revoked, or is none of ours."""
        wanted, backend = not context.ignore_result, self._app.backend
        if note.status == "REVOKED":
            backend.mark_as_revoked(note.id, note.message, request=context, store_result=wanted)
        else:
            backend.mark_as_failure(note.id, _failure(note), request=context, store_result=wanted)

    def _is_stored(self, note: Note) -> bool:
        return note.status == "SUCCESS" and self._app.AsyncResult(note.id).state == "SUCCESS"

    def _count(self, note: Note, context: Context) -> None:
        if not context.chord:
            return
        ends = {"SUCCESS": note.answer, "REVOKED": TaskRevokedError(note.message)}
        self._app.backend.on_chord_part_return(context, note.status, ends.get(note.status, _failure(note)))

    def _tasks(self) -> list[Task]:
        options: dict[str, Any] = {"throws": (dialect.SkillFailed,), "typing": False}
        return [self._app.task(self._answer, name=dialect.task(skill), **options) for skill in Skill]

    def _answer(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        note = self._note
        assert note is not None, "one note at a time"
        if note.status == "FAILURE":
            raise _failure(note)
        return note.answer


def _check(traced: Any) -> None:
    """The tracer keeps what it meets to itself: raise what may pass, as then not all has been told."""
    met = traced.info.retval if traced.info else None
    if isinstance(met, TRANSIENT):
        raise met


def _failure(note: Note) -> dialect.SkillFailed:
    return dialect.SkillFailed(note.code, note.message)
