"""OpenAI's batches: their state in the object store, and the routes that make, show, list and cancel them.

batches/<owner>/<batch id>/state.json        the batch, written by the gateway that runs it
batches/<owner>/<batch id>/cancel            a request to cancel the batch
batches/<owner>/<batch id>/parts/00000.jsonl the finished lines of one part of the input

The queue's Redis knows which batches are unfinished, so that two queues may share a bucket.
"""

import asyncio
import time
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response

from stoop.errors import StoopError
from stoop.gateway.answer import json_response
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.file_routes import page_size
from stoop.gateway.files import ObjectFolder, file_key, new_name, owner_folder
from stoop.gateway.keys import ApiKey
from stoop.redis.open_batches import BatchPlace

__all__ = [
    "ENDPOINTS",
    "Batch",
    "BatchList",
    "BatchRequest",
    "BatchState",
    "batch_folder",
    "cancel_batch",
    "create_batch",
    "list_batches",
    "load_state",
    "save_state",
    "show_batch",
    "with_batch",
]

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/query", "/v1/caption", "/v1/detect", "/v1/point", "/v1/gaze")
_DAY: Final = 86_400
_MOST_METADATA: Final = 16
_HALF_SECONDS: Final = 0.5

_Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The batch to make."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, in OpenAI's shape; times are Unix seconds."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: _Status
    created_at: int
    expires_at: int
    object: Literal["batch"] = "batch"
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: dict[str, Any] | None = None
    request_counts: dict[str, int] = msgspec.field(default_factory=lambda: {"total": 0, "completed": 0, "failed": 0})
    metadata: dict[str, str] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether there is something left to do."""
        return self.status in ("validating", "in_progress", "finalizing", "cancelling")


class BatchState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored batch, and the rights of the key that made it."""

    batch: Batch
    key: ApiKey


class BatchList(msgspec.Struct, frozen=True, kw_only=True):
    """Batches, newest first."""

    data: list[Batch]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


def batch_folder(tenant: str | None, batch_id: str) -> str:
    """Return where a batch is stored."""
    return f"{owner_folder(tenant)}{batch_id}/"


async def load_state(store: ObjectFolder, tenant: str | None, batch_id: str) -> BatchState:
    """Return a batch of the tenant, `cancelling` if that was requested; raise an `ApiError` (404)."""
    file_key(tenant, batch_id)  # checks the id
    folder = batch_folder(tenant, batch_id)
    try:
        state = await _read_state(store, folder)
    except msgspec.DecodeError:
        # some stores show half of an object that is being replaced
        await asyncio.sleep(_HALF_SECONDS)
        state = await _read_whole_state(store, folder)
    if state.batch.is_open and (at := await store.get(f"{folder}cancel")) is not None:
        return with_batch(state, status="cancelling", cancelling_at=int(at))
    return state


async def _read_whole_state(store: ObjectFolder, folder: str) -> BatchState:
    try:
        return await _read_state(store, folder)
    except msgspec.DecodeError as error:
        problem = f"the bucket's object {folder}state.json is damaged ({error}): restore it, or delete it"
        raise ApiError(500, "batch_damaged", problem) from error


async def _read_state(store: ObjectFolder, folder: str) -> BatchState:
    packed = await store.get(f"{folder}state.json")
    if packed is None:
        raise ApiError(404, "batch_not_found", "there is no such batch")
    return msgspec.json.decode(packed, type=BatchState)


async def save_state(store: ObjectFolder, state: BatchState) -> None:
    """Store the batch."""
    folder = batch_folder(state.key.tenant, state.batch.id)
    await store.put(f"{folder}state.json", msgspec.json.encode(state))


def with_batch(state: BatchState, **changes: Any) -> BatchState:
    """Return the state with a changed batch."""
    return msgspec.structs.replace(state, batch=msgspec.structs.replace(state.batch, **changes))


async def create_batch(call: Call) -> Response:
    """Answer `POST /v1/batches`."""
    body = await read_json(call, BatchRequest)
    if body.endpoint not in ENDPOINTS:
        raise ApiError(400, "unsupported_value", f"endpoint must be one of {', '.join(ENDPOINTS)}", param="endpoint")
    if body.completion_window != "24h":
        raise ApiError(400, "unsupported_value", "completion_window must be 24h", param="completion_window")
    if len(body.metadata or {}) > _MOST_METADATA:
        raise ApiError(400, "invalid_value", f"metadata has at most {_MOST_METADATA} entries", param="metadata")
    store = call.gateway.store
    await store.find_file(call.key.tenant, body.input_file_id)
    now = int(time.time())
    batch = Batch(
        id=new_name("batch"),
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        status="validating",
        created_at=now,
        expires_at=now + _DAY,
        metadata=body.metadata,
    )
    state = BatchState(batch=batch, key=msgspec.structs.replace(call.key, sha256="0" * 64))
    await save_state(store, state)
    try:
        await _begin(call, batch.id)
    except StoopError:
        # no gateway would ever run it
        await store.delete(f"{batch_folder(call.key.tenant, batch.id)}state.json")
        raise
    call.note(batch=batch.id)
    return json_response(call, batch)


async def _begin(call: Call, batch_id: str) -> None:
    """Let a gateway run a batch that is stored, or continue it. Raises `QueueUnavailable`."""
    place = BatchPlace(call.gateway.store.bucket, call.key.tenant)
    await call.gateway.open_batches.add(batch_id, place)
    call.gateway.new_batch.set()


async def show_batch(call: Call) -> Response:
    """Answer `GET /v1/batches/{id}`."""
    state = await load_state(call.gateway.store, call.key.tenant, call.request.path_params["id"])
    return json_response(call, state.batch)


async def cancel_batch(call: Call) -> Response:
    """Answer `POST /v1/batches/{id}/cancel`."""
    store, tenant, batch_id = call.gateway.store, call.key.tenant, call.request.path_params["id"]
    state = await load_state(store, tenant, batch_id)
    if state.batch.is_open:
        await store.put(f"{batch_folder(tenant, batch_id)}cancel", str(int(time.time())).encode())
        # Redis may have lost it
        await _begin(call, batch_id)
    return await show_batch(call)


async def list_batches(call: Call) -> Response:
    """Answer `GET /v1/batches`."""
    limit = page_size(call, 100)
    keys = await call.gateway.store.list(f"{owner_folder(call.key.tenant)}batch-")
    ids = [key.split("/")[-2] for key in keys if key.endswith("/state.json")]
    batches = [batch for each in ids if (batch := await _readable(call, each)) is not None]
    batches.sort(key=lambda batch: (batch.created_at, batch.id), reverse=True)
    after = call.request.query_params.get("after")
    if after is not None:
        batches = batches[next((i + 1 for i, batch in enumerate(batches) if batch.id == after), 0) :]
    page = batches[:limit]
    ends = (page[0].id, page[-1].id) if page else (None, None)
    return json_response(call, BatchList(data=page, has_more=len(batches) > limit, first_id=ends[0], last_id=ends[1]))


async def _readable(call: Call, batch_id: str) -> Batch | None:
    try:
        return (await load_state(call.gateway.store, call.key.tenant, batch_id)).batch
    except ApiError:
        return None  # damaged, or deleted since
