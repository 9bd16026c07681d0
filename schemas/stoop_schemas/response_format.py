"""The form of an answer's text, in OpenAI's form: any text, any JSON object, or JSON by a schema."""

from typing import Any, Final

import msgspec

__all__ = ["SCHEMA_LIMIT", "JsonObjectFormat", "JsonSchema", "JsonSchemaFormat", "ResponseFormat", "TextFormat"]

SCHEMA_LIMIT: Final = 1 << 16
"""Most bytes of a schema, as JSON."""


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON Schema, with a name and a description for its readers; answers follow it with or without `strict`."""

    schema: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """JSON that is valid by a schema."""

    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
"""The form of an answer's text."""
