"""Writes the HTTP reference from the gateway's OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["http_reference"]

_TOP: Final = """# HTTP reference

Every route of `stoop serve`, from its OpenAPI document, which a gateway also answers at `/openapi.json`. The
[guide](../guides/gateway.md) has the rules: keys and scopes, streams, files, and the errors' form. A key needs the
scope that a route names.
"""
_Schema = Mapping[str, Any]


def http_reference(document: Mapping[str, Any]) -> str:
    """Return the page in Markdown: the routes by their tags, then the fields of the bodies and answers."""
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags.setdefault(operation["tags"][0], []).append(_route(f"{method.upper()} {path}", operation))
    schemas = document["components"]["schemas"]
    parts = [_TOP, *(f"## {tag}\n\n" + "\n".join(routes) for tag, routes in tags.items()), "## Bodies and answers\n"]
    return "\n".join([*parts, *(_described(name, schemas[name]) for name in sorted(schemas))])


def _route(name: str, operation: Mapping[str, Any]) -> str:
    return "\n".join([f"### `{name}`\n", f"{operation['summary']}\n", *_facts(operation), ""])


def _facts(operation: Mapping[str, Any]) -> Iterator[str]:
    if "x-stoop-scope" in operation:
        yield f"- scope: `{operation['x-stoop-scope']}`"
    for each in operation["parameters"]:
        if each["in"] == "query":
            yield f"- query: `{each['name']}`"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"- body, `{media}`: {_type(content['schema'])}"
    for status, response in operation["responses"].items():
        answers = [f"`{media}`: {_type(content['schema'])}" for media, content in response.get("content", {}).items()]
        if status != "default":
            yield f"- {status}: {response['description']}" + (f" {'; '.join(answers)}" if answers else "")


def _described(name: str, schema: _Schema) -> str:
    title = f"### {name}\n"
    about = f"{' '.join(schema['description'].split())}\n" if "description" in schema else ""
    if not schema.get("properties"):
        return f"{title}\n{about}\n{_type(schema)}\n"
    needed = schema.get("required", [])
    rows = [
        f"| `{field}` | {_type(each)} | {'yes' if field in needed else ''} |"
        for field, each in schema["properties"].items()
    ]
    return "\n".join([title, about, "| field | type | required |", "|---|---|---|", *rows, ""])


def _type(schema: _Schema) -> str:
    """Return a type in words, with links to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}" if isinstance(schema.get("items"), dict) else "array"
    if schema.get("type") == "object":
        fields = ", ".join(f"`{name}`" for name in schema.get("properties", {}))
        return f"object with {fields}" if fields else "object"
    if "const" in schema:
        return f"`{schema['const']}`"
    found = schema.get("type", schema.get("description", "any"))
    return str(found) if isinstance(found, str) else " or ".join(found)
