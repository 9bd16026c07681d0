"""The skills as Celery tasks: their signatures, to be sent; a Stoop worker runs them."""

import functools
from typing import Any, NoReturn

from celery import Celery, Task, shared_task

from stoop.redis.celery_transport import SentinelTransport, Transport
from stoop_schemas import celery as dialect
from stoop_schemas.skill import Skill
from stoop_schemas.skills import spec_of

__all__ = [
    "SkillTask",
    "caption",
    "chat",
    "configure",
    "detect",
    "embed",
    "gaze",
    "point",
    "query",
    "rerank",
    "task",
    "transcribe",
    "translate",
]


def configure(app: Celery) -> Celery:
    """Let an application send to Stoop's workers, and return it; its broker must be the queue's Redis.

    Call it once the application has its configuration, in every process that sends tasks, including the CPU workers of
    a chain. The application's own `task_routes` take precedence over ours.
    """
    # only the kind of the URL matters here
    behind_sentinels = str(app.conf.broker_write_url or app.conf.broker_url or "").startswith("sentinel://")
    transport = SentinelTransport if behind_sentinels else Transport
    app.conf.broker_transport = f"{transport.__module__}:{transport.__name__}"
    routes = app.conf.task_routes or ()
    app.conf.task_routes = [*(routes if isinstance(routes, list | tuple) else [routes]), dialect.ROUTES]
    return app


class SkillTask(Task):  # type: ignore[misc]
    """A task that is sent without the readable copy of its arguments that events and logs would show."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send the task, as any task of Celery."""
        options.setdefault("argsrepr", "(...)")
        options.setdefault("kwargsrepr", "{...}")
        return super().apply_async(args, kwargs, **options)


def _elsewhere(skill: str) -> NoReturn:
    raise NotImplementedError(
        f"{dialect.task(skill)} runs on a Stoop worker: send it to a queue such as {dialect.queue()}, and let no other "
        "worker read from there"
    )


_OPTIONS: dict[str, Any] = {"base": SkillTask, "serializer": "json"}


@shared_task(name=dialect.task(Skill.QUERY), **_OPTIONS)  # type: ignore[untyped-decorator]
def query(image: str | None = None, question: str = "", **options: Any) -> dict[str, Any]:
    """Answer a question about the image: {"answer"[, "reasoning"]}."""
    _elsewhere(Skill.QUERY)


@shared_task(name=dialect.task(Skill.CAPTION), **_OPTIONS)  # type: ignore[untyped-decorator]
def caption(image: str, length: str = "normal", **options: Any) -> dict[str, Any]:
    """Describe the image, "short", "normal" or "long": {"caption"}."""
    _elsewhere(Skill.CAPTION)


@shared_task(name=dialect.task(Skill.DETECT), **_OPTIONS)  # type: ignore[untyped-decorator]
def detect(image: str, object: str, **options: Any) -> dict[str, Any]:
    """Find every instance of an object: {"objects": [{"x_min", "y_min", "x_max", "y_max"}]}."""
    _elsewhere(Skill.DETECT)


@shared_task(name=dialect.task(Skill.POINT), **_OPTIONS)  # type: ignore[untyped-decorator]
def point(image: str, object: str, **options: Any) -> dict[str, Any]:
    """Point at every instance of an object: {"points": [{"x", "y"}]}."""
    _elsewhere(Skill.POINT)


@shared_task(name=dialect.task(Skill.CHAT), **_OPTIONS)  # type: ignore[untyped-decorator]
def chat(messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Write the next message of a chat: {"message": {"role", "content"}}."""
    _elsewhere(Skill.CHAT)


@shared_task(name=dialect.task(Skill.GAZE), **_OPTIONS)  # type: ignore[untyped-decorator]
def gaze(image: str, **options: Any) -> dict[str, Any]:
    """Find the place that a person looks at; `spatial_refs` is [[x, y]], the eye: {"gaze": {"x", "y"} or None}."""
    _elsewhere(Skill.GAZE)


@shared_task(name=dialect.task(Skill.EMBED), **_OPTIONS)  # type: ignore[untyped-decorator]
def embed(input: list[str], **options: Any) -> dict[str, Any]:
    """Turn texts into vectors: {"embeddings"}, each the base64 of its little-endian float32 values."""
    _elsewhere(Skill.EMBED)


@shared_task(name=dialect.task(Skill.RERANK), **_OPTIONS)  # type: ignore[untyped-decorator]
def rerank(query: str, documents: list[str], **options: Any) -> dict[str, Any]:
    """Score how well each document answers the query: {"scores"}, in the order of the documents."""
    _elsewhere(Skill.RERANK)


@shared_task(name=dialect.task(Skill.TRANSCRIBE), **_OPTIONS)  # type: ignore[untyped-decorator]
def transcribe(audio: str, **options: Any) -> dict[str, Any]:
    """Transcribe speech: {"transcript": {"text", "language", "duration", "segments"[, "words"]}}."""
    _elsewhere(Skill.TRANSCRIBE)


@shared_task(name=dialect.task(Skill.TRANSLATE), **_OPTIONS)  # type: ignore[untyped-decorator]
def translate(audio: str, **options: Any) -> dict[str, Any]:
    """Translate speech into English text; otherwise like `transcribe`."""
    _elsewhere(Skill.TRANSLATE)


@functools.cache
def task(skill: str) -> Any:
    """Return the task of any skill, including one that another package adds; its arguments are the skill's fields in
    order.

    Raises `Rejected` (unsupported_skill) if no package here has the skill.
    """
    spec = spec_of(skill)
    built_in = (query, caption, detect, point, gaze, chat, embed, rerank, transcribe, translate)
    own = {each.name.rpartition(".")[2]: each for each in built_in}
    if skill in own:
        return own[Skill(skill)]

    @shared_task(name=dialect.task(skill), **_OPTIONS)  # type: ignore[untyped-decorator]
    def run(*arguments: Any, **options: Any) -> dict[str, Any]:
        _elsewhere(spec.name)

    return run
