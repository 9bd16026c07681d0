"""Turns a request into a job in its lane: the key sets the tenant and limits lane and model, headers set the rest."""

import asyncio
import hashlib
from typing import Any

import msgspec
from starlette.responses import Response

from stoop.errors import InvalidJob
from stoop.gateway.admitted import AdmittedCall
from stoop.gateway.ask import Ask
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError, in_names_of
from stoop.gateway.gateway import Gateway
from stoop.gateway.job_ids import new_job_id
from stoop.gateway.keys import ApiKey
from stoop.gateway.models import check_model, split_adapter
from stoop_schemas.job import Job
from stoop_schemas.names import model_lane

__all__ = ["accepted", "job_of", "note_job", "prepare", "submit"]


async def prepare(call: AdmittedCall, ask: Ask, part: int = 0) -> Job:
    """Return the checked job, its image uploaded. Raises `StoopError` or `ApiError`.

    A request that takes several jobs numbers them by `part`, so that each has its own idempotency key.
    """
    headers = {"idempotency_key": _key_of_part(call.idempotency_key, part), "traceparent": call.traceparent}
    return await job_of(call.gateway, call.key, ask, id=new_job_id(call.key.tenant), **headers)


def _key_of_part(key: str | None, part: int) -> str | None:
    """Return the idempotency key of a part, which is no longer than any key may be, and none that a caller chooses."""
    return key if key is None or part == 0 else f"{hashlib.sha256(key.encode()).hexdigest()}#{part}"


async def job_of(gateway: Gateway, key: ApiKey, ask: Ask, **fields: Any) -> Job:
    """Return the checked job of a key, with further fields of `Job`. Raises `StoopError` or `ApiError`."""
    model = await gateway.models.resolve(ask.model)
    check_model(key, model)
    lane = ask.lane or (key.lanes[0] if key.lanes else gateway.client.config.lane)
    if key.lanes and lane not in key.lanes:
        raise ApiError(403, "lane_forbidden", f"this API key may use only {', '.join(key.lanes)}", param="lane")
    job_fields = {**ask.fields, **fields, "tenant": key.tenant, "model": model, "lane": lane}
    adapter = split_adapter(ask.model)[1] if ask.model else None
    settings = {name: value for name, value in ask.settings.items() if value is not None}
    if adapter is not None:
        settings.setdefault("adapter", adapter)
    try:
        return await gateway.client.prepare(ask.skill, ask.image, settings=settings, **job_fields)
    except InvalidJob as error:
        raise in_names_of(ask.names, error) from None


async def submit(call: AdmittedCall, job: Job) -> str:
    """Put the job into its lane and return its id: that of the first one, if the idempotency key was seen before.

    If the caller leaves meanwhile, the job is cancelled unless it can be asked for again.
    """
    try:
        job_id = await call.gateway.client.submit(job)
    except asyncio.CancelledError:
        # the job may be in its lane already, or get there later; workers also obey a cancel that comes before its job
        if not call.keeps_job:
            call.gateway.cancel(job.id)
        raise
    note_job(call, job, job_id)
    return job_id


def note_job(call: AdmittedCall, job: Job, job_id: str) -> None:
    """Add a submitted job's id and other facts to the headers of the answer and the access log."""
    call.headers["x-stoop-job-id"] = job_id
    call.headers["x-stoop-lane"] = model_lane(job.lane, job.model)
    if job_id != job.id:
        call.headers["idempotent-replayed"] = "true"
    call.note(job=job_id, skill=job.skill, lane=job.lane)


def accepted(call: Call, job_id: str) -> Response:
    """Return the answer for callers that do not wait."""
    headers = {**call.headers, "location": f"/v1/jobs/{job_id}"}
    if call.wants_no_wait:
        headers["preference-applied"] = "respond-async"
    body = msgspec.json.encode({"id": job_id, "status": "queued"})
    return Response(body, 202, headers, media_type="application/json")
