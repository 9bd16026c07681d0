"""OpenAI's routes of files: upload, list, show, read, delete."""

import tempfile
from typing import Literal

import msgspec
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response

from stoop.gateway.answer import json_response
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.files import FileObject, file_key, owner_folder
from stoop.gateway.forms import read_form

__all__ = ["FileDeleted", "FileList", "delete_file", "list_files", "page_size", "read_file", "show_file", "upload_file"]


class FileList(msgspec.Struct, frozen=True, kw_only=True):
    """Files, newest first."""

    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


class FileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of a file."""

    id: str
    deleted: bool
    object: Literal["file"] = "file"


async def upload_file(call: Call) -> Response:
    """Answer `POST /v1/files`."""
    form = await read_form(call, call.gateway.options.max_file_bytes)
    try:
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile):
            raise ApiError(400, "invalid_value", "file must be a file", param="file")
        if purpose != "batch":
            raise ApiError(400, "unsupported_value", "purpose must be batch", param="purpose")
        name = file.filename or "batch.jsonl"
        stored = await call.gateway.store.save_file(call.key.tenant, file.file, name, purpose)
    finally:
        await form.close()
    return json_response(call, stored)


async def list_files(call: Call) -> Response:
    """Answer `GET /v1/files`."""
    limit = page_size(call, 10_000)
    keys = await call.gateway.store.list(f"{owner_folder(call.key.tenant)}files/")
    found = [await call.gateway.store.get(key) for key in keys if key.endswith(".json")]
    files = [msgspec.json.decode(packed, type=FileObject) for packed in found if packed]
    files.sort(key=lambda file: (file.created_at, file.id), reverse=True)
    after = call.request.query_params.get("after")
    if after is not None:
        files = files[next((i + 1 for i, file in enumerate(files) if file.id == after), 0) :]
    page = files[:limit]
    ends = (page[0].id, page[-1].id) if page else (None, None)
    return json_response(call, FileList(data=page, has_more=len(files) > limit, first_id=ends[0], last_id=ends[1]))


async def show_file(call: Call) -> Response:
    """Answer `GET /v1/files/{id}`."""
    return json_response(call, await call.gateway.store.find_file(call.key.tenant, call.request.path_params["id"]))


async def read_file(call: Call) -> Response:
    """Answer `GET /v1/files/{id}/content`."""
    file = await call.gateway.store.find_file(call.key.tenant, call.request.path_params["id"])
    copy = tempfile.NamedTemporaryFile()  # noqa: SIM115 (the response closes it when it was sent)
    call.closes(copy.close)
    await call.gateway.store.copy_to(file_key(call.key.tenant, file.id), copy)
    copy.flush()
    return FileResponse(copy.name, headers=call.headers, media_type="application/jsonl")


async def delete_file(call: Call) -> Response:
    """Answer `DELETE /v1/files/{id}`."""
    file = await call.gateway.store.find_file(call.key.tenant, call.request.path_params["id"])
    key = file_key(call.key.tenant, file.id)
    await call.gateway.store.delete(f"{key}.json")
    await call.gateway.store.delete(key)
    return json_response(call, FileDeleted(id=file.id, deleted=True))


def page_size(call: Call, most: int) -> int:
    """Return the query parameter `limit`; raise an `ApiError` (400) if it is not valid."""
    given = call.request.query_params.get("limit", str(min(most, 100)))
    if not given.isdecimal() or not 1 <= int(given) <= most:
        raise ApiError(400, "invalid_value", f"limit must be from 1 to {most}", param="limit")
    return int(given)
