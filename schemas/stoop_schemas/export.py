"""Export the contract as JSON Schema for other languages: `python -m stoop_schemas.export` writes the folder `json`.

Unknown fields are allowed, as the codec allows them. `job.check` alone has the rules that JSON Schema cannot express:
the sizes of `metadata`, of a schema for an answer, and of a lane's name with its model's; the order of a box's corners;
one form for an answer; and `min_pixels` no larger than `max_pixels`.
"""

import inspect
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from stoop_schemas.address import OBJECT_PATTERN
from stoop_schemas.chat import MESSAGES_LIMIT
from stoop_schemas.event import Event, UnknownEvent
from stoop_schemas.failure import Failure
from stoop_schemas.job import (
    ATTEMPTS_LIMIT,
    DEADLINE_LIMIT,
    ID_LIMIT,
    IMAGE_LIMIT,
    IMAGE_SCHEMES,
    MODEL_PATTERN,
    NAME_PATTERN,
    TEXT_LIMIT,
    Job,
)
from stoop_schemas.names import RESERVED
from stoop_schemas.result import Result
from stoop_schemas.signature import SIGNATURE_PATTERN
from stoop_schemas.skill import ADAPTER_PATTERN, REGEX_LIMIT, SETTING_RANGES, STOP_LIMIT, STOPS_LIMIT
from stoop_schemas.skills import BUILT_IN
from stoop_schemas.state import TERMINAL
from stoop_schemas.texts import DIMENSIONS_LIMIT, TEXTS_LIMIT
from stoop_schemas.transcript import AUDIO_SCHEMES, LANGUAGE_PATTERN

__all__ = ["FOLDER", "export", "render"]

FOLDER: Final = Path(__file__).with_name("json")
"""The folder of the exported schemas."""

_Schema = dict[str, Any]


def render() -> dict[str, str]:
    """Return the text of every exported schema by its file name."""
    built = {"job": _job(), "event": _event(), "result": _result(), "failure": msgspec.json.schema(Failure)}
    return {f"{name}.schema.json": _text(name, schema) for name, schema in built.items()}


def export(folder: Path = FOLDER) -> None:
    """Write every schema into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(name: str, schema: _Schema) -> str:
    for definition in schema["$defs"].values():
        if "description" in definition:  # a docstring: how it is indented differs between versions of Python
            definition["description"] = inspect.cleandoc(definition["description"])
    headed = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:stoop:{name}:1", **schema}
    return msgspec.json.format(msgspec.json.encode(headed), indent=2).decode() + "\n"


def _job() -> _Schema:
    schema = msgspec.json.schema(Job)
    fields = schema["$defs"]["Job"]["properties"]
    for field, keywords in _job_limits().items():
        fields[field] |= keywords
    schema["$defs"]["Settings"]["properties"]["adapter"]["pattern"] = f"^{ADAPTER_PATTERN}$"
    for field, (low, high) in SETTING_RANGES.items():
        schema["$defs"]["Settings"]["properties"][field] |= {"minimum": low, "maximum": high}
    stop = {"maxItems": STOPS_LIMIT, "items": {"type": "string", "minLength": 1, "maxLength": STOP_LIMIT}}
    schema["$defs"]["Settings"]["properties"]["stop"] |= stop
    schema["$defs"]["Settings"]["properties"]["regex"] |= {"minLength": 1, "maxLength": REGEX_LIMIT}
    schema["$defs"]["Job"]["allOf"] = _needs()
    return schema


def _job_limits() -> dict[str, _Schema]:
    """Return the limits of `job.check` as keywords; each binds only values of its own type, so null stays allowed."""
    name = {"pattern": f"^{NAME_PATTERN}$", "minLength": 1, "maxLength": ID_LIMIT}
    free = {"minLength": 1, "maxLength": ID_LIMIT}
    fraction = {"minimum": 0, "maximum": 1}
    point_or_box = {"items": {"type": "number", **fraction}, "anyOf": [_exactly(2), _exactly(4)]}
    return {
        "id": name,
        "skill": {"minLength": 1, "examples": list(BUILT_IN)},
        "lane": {**name, "pattern": f"^(?!(.*:)?{RESERVED}){NAME_PATTERN}$"},
        "model": {"pattern": f"^{MODEL_PATTERN}$", "not": {"const": RESERVED.rstrip(":")}},
        "tenant": name,
        "custom_id": free,
        "idempotency_key": free,
        "traceparent": free,
        "signature": {"pattern": f"^{SIGNATURE_PATTERN}$"},
        "question": {"maxLength": TEXT_LIMIT},
        "object": {"maxLength": TEXT_LIMIT},
        "image": _address(IMAGE_SCHEMES),
        "audio": _address(AUDIO_SCHEMES),
        "language": {"pattern": f"^{LANGUAGE_PATTERN}$"},
        "prompt": {"maxLength": TEXT_LIMIT},
        "spatial_refs": {"items": point_or_box},
        "messages": {"maxItems": MESSAGES_LIMIT},
        "date": {"pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "input": {"maxItems": TEXTS_LIMIT},
        "documents": {"maxItems": TEXTS_LIMIT},
        "query": {"maxLength": TEXT_LIMIT},
        "prompt_name": free,
        "kinds": {"minItems": 1, "uniqueItems": True},
        "dimensions": {"minimum": 1, "maximum": DIMENSIONS_LIMIT},
        "deadline": {"minimum": 1, "maximum": DEADLINE_LIMIT - 1},
        "max_attempts": {"minimum": 1, "maximum": ATTEMPTS_LIMIT},
    }


def _address(schemes: tuple[str, ...]) -> _Schema:
    return {"pattern": f"^({'|'.join((OBJECT_PATTERN, *schemes[1:]))})", "maxLength": IMAGE_LIMIT}


def _exactly(length: int) -> _Schema:
    return {"minItems": length, "maxItems": length}


def _needs() -> list[_Schema]:
    text = {"type": "string", "minLength": 1}
    eye = {"type": "array", "items": _exactly(2), **_exactly(1)}
    some = {"type": "array", "minItems": 1}
    given = {"messages": some, "spatial_refs": eye, "input": some, "documents": some}
    return [
        {
            "if": {"properties": {"skill": {"const": spec.name}}},
            "then": {
                "required": sorted(spec.required),
                "properties": {name: given.get(name, text) for name in sorted(spec.required)},
            },
        }
        for spec in BUILT_IN.values()
    ]


def _event() -> _Schema:
    schema = _with_terminal_status(msgspec.json.schema(Event))
    known = sorted(kind.__struct_config__.tag for kind in get_args(Event))
    del schema["discriminator"]  # it would refuse every type that it does not map
    later = msgspec.json.schema(UnknownEvent)["$defs"]["UnknownEvent"]
    later["properties"]["type"] = {"type": "string", "not": {"enum": known}}
    schema["$defs"]["UnknownEvent"] = later
    schema["anyOf"].append({"$ref": "#/$defs/UnknownEvent"})
    return schema


def _result() -> _Schema:
    return _with_terminal_status(msgspec.json.schema(Result))


def _with_terminal_status(schema: _Schema) -> _Schema:
    schema["$defs"]["Result"]["properties"]["status"] = {"enum": sorted(TERMINAL)}
    del schema["$defs"]["State"]
    return schema


if __name__ == "__main__":
    export()
