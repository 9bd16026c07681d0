"""One unit of work as the producer sees it."""

import re
from datetime import date
from typing import Any, Final

import msgspec

from stoop_schemas import names
from stoop_schemas.address import is_object
from stoop_schemas.chat import CHAT_LIMIT, IMAGES_LIMIT, MESSAGES_LIMIT, Message, Role, images_of, text_of
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.settings import check_settings
from stoop_schemas.signature import SIGNATURE_PATTERN
from stoop_schemas.skill import CaptionLength, Settings, Skill, SpatialRef, VectorKind
from stoop_schemas.skills import spec_of, takers_of
from stoop_schemas.texts import DIMENSIONS_LIMIT, TEXTS_LENGTH_LIMIT, TEXTS_LIMIT
from stoop_schemas.transcript import Timestamps, check_speech
from stoop_schemas.version import Version, current

__all__ = [
    "ATTEMPTS_LIMIT",
    "DEADLINE_LIMIT",
    "ID_LIMIT",
    "IMAGE_LIMIT",
    "IMAGE_SCHEMES",
    "METADATA_LIMIT",
    "MODEL_PATTERN",
    "NAME_PATTERN",
    "TEXT_LIMIT",
    "Job",
    "check",
]

METADATA_LIMIT: Final = 1024
"""Most bytes of a job's metadata, as JSON."""

TEXT_LIMIT: Final = 8192
"""Most characters of a question or an object name."""

ID_LIMIT: Final = 128
"""Most characters of an id, a custom id, an idempotency key, a lane, a tenant or a traceparent."""

IMAGE_LIMIT: Final = 1 << 20
"""Most characters of an image's or a recording's address; a larger image or recording belongs in the object store."""

ATTEMPTS_LIMIT: Final = 100
"""Most attempts a job may ask for."""

DEADLINE_LIMIT: Final = 1 << 53
"""Deadlines stay below this, so that they are exact where every number is a double (Lua, JavaScript)."""

NAME_PATTERN: Final = r"[A-Za-z0-9._:-]+"
"""An id, a lane or a tenant, whole: it becomes part of a key in Redis."""

MODEL_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The short name of a model, whole: it becomes part of a lane's name, where a colon ends it."""

IMAGE_SCHEMES: Final = ("s3://", "data:image/", "https://")
"""The prefixes that an image address may have."""

_WANTED: Final = {
    "question": "a question",
    "object": "an object to look for",
    "image": "an image",
    "messages": "messages",
    "input": "a list of texts",
    "query": "a query",
    "documents": "a list of texts",
    "audio": "a recording",
    "spatial_refs": "one point [x, y], the eye of the person",
}
_NAME: Final = re.compile(NAME_PATTERN)
_MODEL: Final = re.compile(MODEL_PATTERN)
_SIGNATURE: Final = re.compile(SIGNATURE_PATTERN)


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A skill to run, with its inputs; flat, so that a line of Moondream's batch files is one too.

    `id` comes from the producer (`names.new_id` makes one) and names the job's keys.
    `image` is `s3://bucket/key[?versionId=...]`, `data:image/...;base64,...`, `https://...` (where the worker
    allows it) or absent for a query on text alone. `audio` is an address of the same kinds, with `data:audio/...` or
    `data:video/...`; with `vad` its parts without speech are left out, and with `parallel` its windows are transcribed
    at the same time. Without `reasoning` the model's default applies. `deadline` is in Unix milliseconds. `custom_id`
    and `metadata` (at most 1 KiB) come back untouched in the result. `model` is a short name: the job then waits in a
    lane of that model (`names.model_lane`), and no other model answers it. With `store_output` the worker may put the
    output into its object store, from where the producer reads it. `signature` comes last and is written by
    `stoop_schemas.signature`, over the bytes of all the rest.
    """

    v: Version = msgspec.field(default_factory=current)
    id: str
    custom_id: str | None = None
    skill: str
    image: str | None = None
    question: str | None = None
    object: str | None = None
    length: CaptionLength = CaptionLength.NORMAL
    reasoning: bool | None = None
    spatial_refs: list[SpatialRef] | None = None
    messages: list[Message] | None = None
    date: str | None = None
    input: list[str] | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    kinds: list[VectorKind] | None = None
    query: str | None = None
    documents: list[str] | None = None
    truncate: bool = False
    audio: str | None = None
    language: str | None = None
    prompt: str | None = None
    timestamps: Timestamps = Timestamps.SEGMENT
    vad: bool = False
    parallel: bool = False
    settings: Settings = Settings()
    stream: bool = False
    lane: str = "interactive"
    deadline: int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    tenant: str | None = None
    metadata: dict[str, Any] | None = None
    traceparent: str | None = None
    model: str | None = None
    store_output: bool = False
    signature: str | None = None

    @property
    def images(self) -> list[str]:
        """The addresses of all images: `image`, and those in the messages, in their order."""
        return ([] if self.image is None else [self.image]) + images_of(self.messages or [])


def check(job: Job) -> Job:
    """Return the job if every field is in its range; otherwise raise `Rejected`, which names the fault."""
    _check_required(job)
    _check_names(job)
    _check_texts(job)
    check_settings(job.settings, job.skill)
    _check_spatial_refs(job)
    _check_chat(job)
    _check_inputs(job)
    _check_limits(job)
    return job


def _check_required(job: Job) -> None:
    for field in spec_of(job.skill).required:
        value = getattr(job, field)
        if not value:
            message = f"{job.skill} needs {_WANTED.get(field, 'a value')}: give `{field}`"
            raise Rejected(FailureCode.MALFORMED, message, field)


def _check_names(job: Job) -> None:
    named = {"id": job.id, "lane": job.lane, "tenant": job.tenant}
    for field, value in named.items():
        if value is not None and (len(value) > ID_LIMIT or not _NAME.fullmatch(value)):
            raise _invalid(f"{field} must be 1 to {ID_LIMIT} characters of A-Z a-z 0-9 . _ : -", field)
    if names.is_reserved(job.lane):
        message = f"lane is {job.lane}: only the workers put jobs into a quarantine, so choose another"
        raise _invalid(message, "lane")
    if job.model is not None:
        _check_model(job.model, job.lane)
    free = {"custom_id": job.custom_id, "idempotency_key": job.idempotency_key, "traceparent": job.traceparent}
    for field, value in free.items():
        if value is not None and not 1 <= len(value) <= ID_LIMIT:
            raise _invalid(f"{field} must have 1 to {ID_LIMIT} characters", field)
    if job.signature is not None and not _SIGNATURE.fullmatch(job.signature):
        raise _invalid("signature must be <key id>:<64 hex digits>", "signature")


def _check_model(model: str, lane: str) -> None:
    if not _MODEL.fullmatch(model) or model == "quarantine":
        message = "model must be a short name: 1 to 64 characters of A-Z a-z 0-9 . _ -, such as moondream2"
        raise _invalid(message, "model")
    if len(names.model_lane(lane, model)) > ID_LIMIT:
        raise _invalid(f"model and lane together must have at most {ID_LIMIT - 1} characters", "model")


def _check_texts(job: Job) -> None:
    for field in ("question", "object", "prompt", "query"):
        if len(text := getattr(job, field) or "") > TEXT_LIMIT:
            raise _invalid(f"{field} has {len(text)} characters: at most {TEXT_LIMIT}", field)
    _check_images(job.images, "messages" if job.image is None else "image")


def _check_images(images: list[str], field: str) -> None:
    if sum(map(len, images)) > IMAGE_LIMIT:
        message = f"the images' addresses have more than {IMAGE_LIMIT} characters: use the object store"
        raise Rejected(FailureCode.IMAGE_TOO_LARGE, message, field)
    for image in images:
        if not image.startswith(IMAGE_SCHEMES):
            raise _invalid("image must be an s3://bucket/key, data:image/... or https:// address", field)
        if image.startswith("s3://") and not is_object(image):
            raise _invalid("image names no object: write s3://bucket/key, with a bucket and a key", field)


def _check_chat(job: Job) -> None:
    messages = job.messages
    if messages is None:
        return
    if len(messages) > MESSAGES_LIMIT:
        raise _invalid(f"the chat has {len(messages)} messages: at most {MESSAGES_LIMIT}", "messages")
    if messages and messages[-1].role is Role.ASSISTANT:
        raise _invalid("the last message must not be the assistant's: the model writes that one", "messages")
    if sum(map(len, text_of(messages))) > CHAT_LIMIT:
        raise _invalid(f"the chat has more than {CHAT_LIMIT} characters", "messages")
    if len(images_of(messages)) > IMAGES_LIMIT:
        raise _invalid(f"the chat has {len(images_of(messages))} images: at most {IMAGES_LIMIT}", "messages")
    if job.image is not None:
        raise _invalid("the images of a chat are parts of its messages: leave image out", "image")


def _check_inputs(job: Job) -> None:
    """Check the texts to embed or to score, and the recording."""
    for field, texts in {"input": job.input, "documents": job.documents}.items():
        if texts is None:
            continue
        if len(texts) > TEXTS_LIMIT:
            message = f"{field} has {len(texts)} texts: at most {TEXTS_LIMIT}; split them over several jobs"
            raise _invalid(message, field)
        if sum(map(len, texts)) > TEXTS_LENGTH_LIMIT:
            raise _invalid(f"the texts of {field} have more than {TEXTS_LENGTH_LIMIT} characters together", field)
        if job.images:
            raise _invalid(f"{job.skill} takes no image", "image")
    if job.dimensions is not None and not 1 <= job.dimensions <= DIMENSIONS_LIMIT:
        raise _invalid(f"dimensions is {job.dimensions}: it must be from 1 to {DIMENSIONS_LIMIT}", "dimensions")
    if job.kinds is not None and (not job.kinds or len(set(job.kinds)) < len(job.kinds)):
        raise _invalid(f"kinds must name one or more of {', '.join(VectorKind)}, each once", "kinds")
    if job.prompt_name is not None and not 1 <= len(job.prompt_name) <= ID_LIMIT:
        raise _invalid(f"prompt_name must have 1 to {ID_LIMIT} characters", "prompt_name")
    check_speech(job.audio, job.language, IMAGE_LIMIT)
    if job.audio is not None and (job.images or not spec_of(job.skill).takes("audio")):
        raise _invalid(f"audio goes with {' and '.join(takers_of('audio'))}, and with no image", "audio")


def _check_spatial_refs(job: Job) -> None:
    if not job.spatial_refs:
        return
    if not spec_of(job.skill).takes("spatial_refs"):
        raise _invalid(f"spatial_refs go with {', '.join(takers_of('spatial_refs'))}", "spatial_refs")
    if job.image is None:
        raise _invalid("spatial_refs need an image", "spatial_refs")
    if any(len(ref) not in (2, 4) for ref in job.spatial_refs):
        raise _invalid("each of spatial_refs is a point [x, y] or a box [x_min, y_min, x_max, y_max]", "spatial_refs")
    if any(not 0.0 <= value <= 1.0 for ref in job.spatial_refs for value in ref):
        raise _invalid("spatial_refs are fractions of the image, from 0 to 1", "spatial_refs")
    if any(len(ref) == 4 and (ref[0] > ref[2] or ref[1] > ref[3]) for ref in job.spatial_refs):
        raise _invalid("a box in spatial_refs is [x_min, y_min, x_max, y_max]", "spatial_refs")
    if job.skill == Skill.GAZE and [len(ref) for ref in job.spatial_refs] != [2]:
        raise _invalid("gaze takes one point [x, y] in spatial_refs: the eye of the person", "spatial_refs")


def _check_limits(job: Job) -> None:
    if job.date is not None and not _is_date(job.date):
        raise _invalid("date must be written as 2026-01-31", "date")
    if job.deadline is not None and not 0 < job.deadline < DEADLINE_LIMIT:
        raise _invalid("deadline is a time in Unix milliseconds", "deadline")
    if job.max_attempts is not None and not 1 <= job.max_attempts <= ATTEMPTS_LIMIT:
        raise _invalid(f"max_attempts must be from 1 to {ATTEMPTS_LIMIT}", "max_attempts")
    if job.metadata is not None and _json_size(job.metadata) > METADATA_LIMIT:
        raise _invalid(f"metadata is over {METADATA_LIMIT} bytes as JSON", "metadata")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _json_size(metadata: dict[str, Any]) -> int:
    try:
        return len(msgspec.json.encode(metadata))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(f"metadata cannot be written as JSON: {error}", "metadata") from error


def _invalid(message: str, field: str) -> Rejected:
    return Rejected(FailureCode.INVALID_ARGUMENT, message, field)
