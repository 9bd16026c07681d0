"""The routes as an OpenAPI document, and as a page that loads nothing from other servers."""

import html
from typing import Any

from starlette.responses import HTMLResponse, Response

from stoop.gateway.answer import json_response
from stoop.gateway.call import Call

__all__ = ["show_docs", "show_openapi"]

_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark }}
code, pre {{ font: 14px/1.4 ui-monospace, monospace }} pre {{ overflow: auto; padding: .6rem; border: 1px solid #8886 }}
summary {{ cursor: pointer; padding: .3rem 0 }} b {{ display: inline-block; min-width: 4.5rem }}
</style><h1>{title}</h1><p>{about} The same as JSON: <a href="openapi.json">openapi.json</a>.</p>{groups}</html>"""


async def show_openapi(call: Call) -> Response:
    """Answer `GET /openapi.json`."""
    return json_response(call, call.request.app.state.document)


async def show_docs(call: Call) -> Response:
    """Answer `GET /docs`."""
    return HTMLResponse(_page(call.request.app.state.document), headers={**call.headers, **_HEADERS})


def _page(document: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, document))
    sections = "".join(f"<h2>{html.escape(tag)}</h2>{''.join(rows)}" for tag, rows in groups.items())
    about = document["info"]
    return _PAGE.format(title=html.escape(about["title"]), about=html.escape(about["description"]), groups=sections)


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    head = f"<b>{method.upper()}</b> <code>{html.escape(path)}</code> {html.escape(operation['summary'])}"
    paragraphs = [f"<p>Scope: {html.escape(operation.get('x-stoop-scope') or 'none, anybody may call')}.</p>"]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        paragraphs.append(
            f"<p>Body, {html.escape(media_type)}:</p><pre>{html.escape(_fields(content['schema'], document))}</pre>"
        )
    return f"<details><summary>{head}</summary>{''.join(paragraphs)}</details>"


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    found = document["components"]["schemas"].get(name, schema)
    required = found.get("required", ())
    lines = [
        f"{field}{'' if field in required else '?'}: {_type(each)}"
        for field, each in found.get("properties", {}).items()
    ]
    return "\n".join(lines) or _type(found)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items') or {})}]"
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("type", "any"))
