"""The lines of a batch: turns OpenAI's or Moondream's line into a job, and the job's end into a line of the output."""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from stoop.errors import StoopError
from stoop.gateway.ask import Ask
from stoop.gateway.body import convert_body
from stoop.gateway.chat import chat_ask, completion
from stoop.gateway.chat_request import ChatRequest
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.job_ids import job_id_from
from stoop.gateway.models import Models
from stoop.gateway.moondream import BODIES, skill_ask
from stoop.gateway.moondream_answer import whole_answer
from stoop.gateway.submission import job_of
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["BatchLine", "read_line"]

_BULK: Final = "bulk"
_CUSTOM_ID: Final = 512


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line of the input: its number, its caller's id, and its request; `problem` if it has none."""

    number: int
    custom_id: str | None
    endpoint: str
    body: dict[str, Any]
    problem: ApiError | None = None

    async def job(self, gateway: Any, state: Any) -> Job:
        """Return the line's job, the same one in every run. Raises `ApiError` or `StoopError`."""
        if self.problem is not None:
            raise self.problem
        seed = f"{state.batch.id}/{self.number}"
        ask = await self._ask(gateway.models)
        fields = {**ask.fields, "stream": False, "deadline": 1000 * state.batch.expires_at}
        lane = ask.lane or (state.key.lanes[0] if state.key.lanes else _BULK)
        ask = replace(ask, lane=lane, fields=fields)
        return await job_of(gateway, state.key, ask, id=job_id_from(seed.encode(), state.key.tenant))

    async def _ask(self, models: Models) -> Ask:
        if self.endpoint == "/v1/chat/completions":
            return await chat_ask(models, convert_body(self.body, ChatRequest))
        skill = self.endpoint.rpartition("/")[2]
        return await skill_ask(skill, convert_body(self.body, BODIES[skill]))

    def answered(self, result: Result) -> bytes:
        """Return the line of the output for a completed job."""
        if self.endpoint == "/v1/chat/completions":
            answer: Any = completion(str(self.body.get("model", "")), int(time.time()), result)
        else:
            answer = whole_answer(result.id, result, asked=self.endpoint.rpartition("/")[2])
        return self._line(200, result.id, answer)

    def failed(self, error: ApiError | StoopError) -> bytes:
        """Return the line of the output for a job that did not complete."""
        api_error = from_stoop(error) if isinstance(error, StoopError) else error
        return self._line(api_error.status, api_error.job_id or "", msgspec.Raw(api_error.body))

    def _line(self, status: int, request_id: str, body: Any) -> bytes:
        response = {"status_code": status, "request_id": request_id, "body": body}
        line = {"id": f"batch_req_{self.number}", "custom_id": self.custom_id, "response": response, "error": None}
        return msgspec.json.encode(line) + b"\n"


def read_line(packed: bytes, number: int, endpoint: str) -> BatchLine:
    """Read one line, OpenAI's or Moondream's `{"id", "skill", "image", …}`; a fault in it becomes its `problem`."""
    try:
        found = msgspec.json.decode(packed)
        if isinstance(found, dict) and "skill" in found:
            return _moondream_line(found, number)
        line = msgspec.convert(found, _Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = str(error) if isinstance(error, msgspec.ValidationError) else "not JSON"
        return BatchLine(number, None, endpoint, {}, ApiError(400, "invalid_line", f"line {number + 1}: {message}"))
    if line.url != endpoint or line.method != "POST" or len(line.custom_id) > _CUSTOM_ID:
        message = f"line {number + 1}: it must be a POST to {endpoint}, its custom_id at most {_CUSTOM_ID} characters"
        return BatchLine(number, line.custom_id[:_CUSTOM_ID], endpoint, {}, ApiError(400, "invalid_line", message))
    return BatchLine(number, line.custom_id, endpoint, line.body)


def _moondream_line(found: dict[str, Any], number: int) -> BatchLine:
    skill = found.get("skill")
    custom_id = str(found["id"]) if "id" in found else None
    if skill not in BODIES:
        problem = ApiError(400, "unsupported_skill", f"line {number + 1}: skill must be one of {', '.join(BODIES)}")
        return BatchLine(number, custom_id, "/v1/query", {}, problem)
    body = {name: value for name, value in found.items() if name not in ("id", "skill", "image")}
    return BatchLine(number, custom_id, f"/v1/{skill}", {"image_url": found.get("image"), **body})
