"""The native routes: submit a job, read it, cancel it, and follow its events, resumable after any interruption."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from sse_starlette import ServerSentEvent
from starlette.responses import Response

from stoop.errors import OutputGone, OutputUnreadable, QueueUnavailable, StoopError, UploadFailed
from stoop.gateway.answer import json_response
from stoop.gateway.ask import Ask
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.chat_request import Message, conversation
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.follower import Follower
from stoop.gateway.images import image_of
from stoop.gateway.job_ids import is_of
from stoop.gateway.keys import Scope
from stoop.gateway.moondream import Sampling
from stoop.gateway.stream import event_stream
from stoop.gateway.submission import accepted, prepare, submit
from stoop_schemas.event import Event, FinishedEvent, TerminalEvent
from stoop_schemas.result import Result
from stoop_schemas.skill import CaptionLength, SpatialRef
from stoop_schemas.state import TERMINAL, State
from stoop_schemas.transcript import AUDIO_SCHEMES, Timestamps
from stoop_schemas.version import current

__all__ = ["JobRequest", "JobStatus", "cancel_job", "job_events", "job_status", "submit_job"]

_NO_RECORDING: Final = "audio must be an address: s3://bucket/key, data:audio/...;base64,... or https://..."

_ANSWERED: Final = (State.COMPLETED, State.FAILED)
"""The states of a job that has a result to show."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as in the wire contract, without the fields that the API key sets. Its events stream by default."""

    skill: str
    image: str | None = None
    question: str | None = None
    object: str | None = None
    length: CaptionLength | None = None
    reasoning: bool | None = None
    spatial_refs: list[SpatialRef] | None = None
    messages: list[Message] | None = None
    date: str | None = None
    audio: str | None = None
    language: str | None = None
    prompt: str | None = None
    timestamps: Timestamps | None = None
    settings: Sampling | None = None
    stream: bool = True
    model: str | None = None
    lane: str | None = None
    deadline: int | None = None
    max_attempts: int | None = None
    custom_id: str | None = None
    metadata: dict[str, Any] | None = None


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's id and state, and its result once it has one."""

    id: str
    status: State
    result: dict[str, Any] | None = None


_OWN: Final = ("skill", "image", "messages", "settings", "model", "lane")


async def submit_job(call: Call) -> Response:
    """Answer `POST /v1/jobs`: 202 with the job's id."""
    body = await read_json(call, JobRequest)
    fields = {name: value for name, value in msgspec.structs.asdict(body).items() if name not in _OWN}
    settings = body.settings.values() if body.settings else {}
    image = await image_of(body.image, "image")
    if body.messages is not None:
        fields["messages"] = await conversation(body.messages)
    if body.audio is not None and not body.audio.startswith(AUDIO_SCHEMES):
        # the client would take it for a file of this machine
        raise ApiError(400, "invalid_value", _NO_RECORDING, param="audio")
    ask = Ask(body.skill, image, settings=settings, model=body.model, lane=body.lane, fields=fields)
    return accepted(call, await submit(call, await prepare(call, ask)))


async def job_status(call: Call) -> Response:
    """Answer `GET /v1/jobs/{id}`; raise an `ApiError` (410) if the job has ended and its result has expired."""
    job_id, state = await _known(call)
    result = await _result(call, job_id) if state in _ANSWERED else None
    return json_response(call, JobStatus(id=job_id, status=state, result=result))


async def cancel_job(call: Call) -> Response:
    """Answer `DELETE /v1/jobs/{id}` with the state that the job was in."""
    job_id, _ = await _known(call)
    state = await call.gateway.client.cancel(job_id)
    if state is None:
        raise _unknown()
    return json_response(call, JobStatus(id=job_id, status=state))


async def job_events(call: Call) -> Response:
    """Answer `GET /v1/jobs/{id}/events`, from the event after the one that the caller saw last.

    An outage of Redis or of the object store gives a stream that ends early, not an error: a browser reconnects after a
    stream's end but not after an error. If the answer was deleted from the object store, or the store refuses to give
    it, the last event is `failed`. A caller that has seen the last event gets 204, so that a browser stops
    reconnecting.
    """
    after = _after(call)
    with contextlib.suppress(QueueUnavailable):
        job_id, state = await _known(call)
        last = await call.gateway.client.last_seq(job_id) if state in TERMINAL else None
        if last is not None and 0 <= last <= after:
            return Response(status_code=204, headers=call.headers)
    job_id = call.request.path_params["id"]
    follower = call.follow(job_id, after=after)
    return event_stream(call, _events(call, follower))


async def _known(call: Call) -> tuple[str, State]:
    """Return the id and the state of a job that the caller may see; raise an `ApiError` (404) for all others."""
    job_id = call.request.path_params["id"]
    if not is_of(job_id, call.key.tenant) and not call.may(Scope.OPERATOR):
        raise _unknown()
    state = await call.gateway.client.state(job_id)
    if state is None:
        raise _unknown()
    call.note(job=job_id)
    return job_id, state


def _unknown() -> ApiError:
    return ApiError(404, "job_not_found", "there is no such job, or not any more")


async def _result(call: Call, job_id: str) -> dict[str, Any]:
    result = await call.gateway.client.stored_result(job_id)
    if result is None:
        message = "the job has ended, but its result was deleted when its time was over: submit the job again"
        raise ApiError(410, "result_expired", message, job_id=job_id)
    return _shown(result)


def _shown(result: Result) -> dict[str, Any]:
    """Return the result without the names of the operator's machines and folders."""
    model = result.model.rpartition("/")[2] if result.model and result.model.startswith(("/", ".")) else result.model
    shown: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, worker=None, model=model))
    return shown


def _after(call: Call) -> int:
    seen = call.header("last-event-id") or call.request.query_params.get("after", "")
    return int(seen) if seen.isdecimal() and len(seen) <= 18 else -1


async def _events(call: Call, follower: Follower) -> AsyncGenerator[ServerSentEvent, None]:
    with contextlib.suppress(StoopError, ApiError):  # the caller reconnects, with the last event that it saw
        try:
            while True:
                event = await follower.next()
                yield ServerSentEvent(_data(event), event=event.type, id=str(event.seq), sep="\n")
                if isinstance(event, TerminalEvent):
                    return
        except (OutputGone, OutputUnreadable, UploadFailed) as error:
            if isinstance(error, UploadFailed) and not error.refused:
                return
            seq = await call.gateway.client.last_seq(follower.job_id)
            if seq is not None:
                yield _unreadable(follower.job_id, seq, from_stoop(error))


def _data(event: Event) -> str:
    if not isinstance(event, FinishedEvent):
        return event.json()
    shown = msgspec.to_builtins(event) | {"result": _shown(event.result)}
    return msgspec.json.encode(shown).decode()


def _unreadable(job_id: str, seq: int, error: ApiError) -> ServerSentEvent:
    """Return the last event for a job whose answer cannot be read, in place of the event `finished`.

    It has the `seq` of that event, so that a browser that reconnects gets 204 and stops.
    """
    failure = {"code": error.code, "message": error.message, "retryable": False}
    data = {"type": "failed", "v": current(), "id": job_id, "seq": seq, "failure": failure}
    return ServerSentEvent(msgspec.json.encode(data).decode(), event="failed", id=str(seq), sep="\n")
