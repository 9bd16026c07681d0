"""The table of routes as an OpenAPI 3.1 document; the schemas come from the same types that read the bodies."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from stoop.gateway.route import Route

__all__ = ["document"]

_DESCRIPTION: Final = "Moondream's and OpenAI's HTTP interface over a queue of jobs, and the jobs themselves."
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_PARAMETER: Final = re.compile(r"\{(\w+)(?::path)?\}")


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document of these routes."""
    types = [each for route in routes for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    found = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        body = next(found) if route.body is not None else None
        answer = next(found) if route.answer is not None else None
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, body, answer)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Stoop gateway", "version": version("stoop"), "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "moondream": {"type": "apiKey", "in": "header", "name": "X-Moondream-Auth"},
            },
        },
    }
    # as it is read from JSON, where a tuple is an array
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described))
    return plain


def _operation(route: Route, body: dict[str, Any] | None, answer: dict[str, Any] | None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method} {route.path.replace(':path', '')}").strip("_").lower(),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route.path), *_query_parameters(route.query)],
        "responses": _responses(route, answer),
    }
    if route.scope is not None:
        operation |= {"security": [{"bearer": []}, {"moondream": []}], "x-stoop-scope": route.scope.value}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if route.form:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form(route.form)}}}
    return operation


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]


def _query_parameters(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in names]


def _form(names: Sequence[str]) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    if "file" in properties:
        properties["file"]["format"] = "binary"
    return {"type": "object", "required": ["file"], "properties": properties}


def _responses(route: Route, answer: dict[str, Any] | None) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in route.statuses:
        content: dict[str, Any] = {}
        if status == 202 and len(route.statuses) > 1:
            content["application/json"] = {"schema": {"type": "object"}}
        elif status != 204:
            if answer is not None:
                content["application/json"] = {"schema": answer}
            elif not route.streams:
                content[route.media_type] = {"schema": {"type": "string"}}
            if route.streams:
                # 3.1 has no words for one event of a stream, and readers disagree on the value of the whole
                content["text/event-stream"] = {"schema": {"description": "Server-sent events."}}
        responses[str(status)] = {"description": _DESCRIPTIONS[status], **({"content": content} if content else {})}
    responses["default"] = {
        "description": "The request got no answer; `code` says why.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    return responses


_DESCRIPTIONS: Final = {
    200: "The answer.",
    201: "Made.",
    202: "The job is in its lane; its id is in the body, its address in `Location`.",
    204: "There is nothing more.",
}
