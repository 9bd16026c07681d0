"""The commands of Celery's remote control that a worker answers: ping, active, stats and revoke."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from celery import Celery

from stoop_schemas.job import ID_LIMIT

__all__ = ["Mailbox"]

log = logging.getLogger(__name__)

_MOST_IDS: Final = 10_000
_POLL_SECONDS: Final = 1.0
_RECONNECT_SECONDS: Final = 2.0

_Reply = dict[str, Any] | list[Any] | None


class _Commands(dict[str, Callable[..., _Reply]]):
    def __missing__(self, name: str) -> Callable[..., _Reply]:
        return lambda state, **arguments: {"error": f"a Stoop worker does not know {name!r}"}


class Mailbox:
    """Answers commands to all workers or to this one.

    `ask` puts a question to the worker and returns the answer; `revoke` passes the ids of revoked tasks to it.
    """

    def __init__(
        self, app: Celery, hostname: str, *, ask: Callable[[str], Any], revoke: Callable[[list[str]], None]
    ) -> None:
        self._app = app
        self._ask = ask
        self._revoke_in_worker = revoke
        commands = _Commands(ping=self._ping, active=self._active, stats=self._stats, revoke=self._revoke)
        self._node = app.control.mailbox.Node(hostname, handlers=commands)
        self._started = time.monotonic()

    def run(self) -> None:
        """Listen until cancelled; reconnect whenever the connection is lost."""
        while True:
            try:
                self._listen()
            except Exception as error:  # a new connection may survive whatever ended this one
                log.warning("not listening for remote control: %s", type(error).__name__)
            time.sleep(_RECONNECT_SECONDS)

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            self._node.channel = connection.default_channel
            with self._node.listen():
                while True:
                    try:
                        connection.drain_events(timeout=_POLL_SECONDS)
                    except TimeoutError:
                        continue

    def _ping(self, state: object, **arguments: Any) -> _Reply:
        return {"ok": "pong"}

    def _active(self, state: object, **arguments: Any) -> _Reply:
        return self._ask("active") or []

    def _stats(self, state: object, **arguments: Any) -> _Reply:
        stats = self._ask("stats") or {}
        return {"pid": os.getppid(), "uptime": round(time.monotonic() - self._started), **stats}

    def _revoke(self, state: object, task_id: str | list[str], **arguments: Any) -> _Reply:
        ids = [task_id] if isinstance(task_id, str) else list(task_id)
        self._revoke_in_worker([one for one in ids if isinstance(one, str) and len(one) <= ID_LIMIT][:_MOST_IDS])
        return {"ok": f"{len(ids)} tasks will be cancelled"}
