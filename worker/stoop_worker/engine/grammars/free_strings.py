"""Finds the strings of a schema that may have any characters, so that only their lengths tell what may follow."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["FreeStrings", "free_strings"]

_ANNOTATIONS: Final = frozenset(
    (
        *("title", "description", "default", "examples", "readOnly", "writeOnly", "$comment"),
        *("$schema", "$defs", "definitions"),
    )
)
_LIMITS: Final = frozenset(
    (
        *("type", "required", "minProperties", "maxProperties"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)
_LENGTHS: Final = ("minLength", "maxLength")
_ARRAY_LENGTHS: Final = ("minItems", "maxItems", "prefixItems")
_CHOSEN: Final = ("enum", "const", "pattern", "format")
"""Keywords by which a string's own characters tell what may follow."""

_UNNESTED: Final = _LIMITS | {*_LENGTHS, *_CHOSEN, "minItems", "maxItems"}
_ANY_NAME: Final = "\0"  # no key has it, because JSON spells it otherwise
_NESTED: Final = frozenset(("object", "array"))


class FreeStrings(NamedTuple):
    """A string is free unless `others` has the name of its property, or of the property with its array.

    How many characters a free string has beyond `longest` makes no difference to what may follow, nor does the number
    of an array's items beyond `longest_array`.
    """

    others: frozenset[str | None]
    longest: int
    longest_array: int


class _Unknown(Exception):
    """This module cannot tell what may follow the values of a part of the schema."""


def free_strings(schema: str) -> FreeStrings | None:
    """Return the free strings of a valid schema, if what may follow a value does not depend on that value.

    Return None if a value may decide between alternatives, or if the schema has keywords that this module does not
    know.
    """
    walk = _Walk(json.loads(schema))
    try:
        walk.take(walk.whole, None)
    except (_Unknown, RecursionError, ArithmeticError, AttributeError, TypeError, ValueError):  # an odd value, perhaps
        return None
    return FreeStrings(frozenset(walk.others), walk.longest + 1, walk.longest_array + 1)


class _Walk:
    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.others: set[str | None] = set()
        self.longest = 0
        self.longest_array = 0
        self._taken: set[tuple[int, str | None]] = set()  # a reference may lead back to where it is

    def take(self, schema: Any, name: str | None) -> None:
        """Take a part of the schema, for the values of properties with this name."""
        if isinstance(schema, bool) or (id(schema), name) in self._taken:
            return
        self._taken.add((id(schema), name))
        keywords = _keywords(schema)
        alternatives = list(self._alternatives(schema))
        if alternatives:
            for each in alternatives:
                self.take(each, name)
            return
        for keyword in keywords:
            self._take_keyword(keyword, schema[keyword], name)

    def _take_keyword(self, keyword: str, value: Any, name: str | None) -> None:
        if keyword in _LENGTHS:
            self.longest = max(self.longest, int(value))
        elif keyword in _ARRAY_LENGTHS:
            self.longest_array = max(self.longest_array, len(value) if isinstance(value, list) else int(value))
        elif keyword in _CHOSEN:
            if name == _ANY_NAME or _has_nested(keyword, value):
                raise _Unknown
            self.others.add(name)
        if keyword not in _UNNESTED:
            for each, own in _parts(keyword, value, name):
                self.take(each, own)

    def _alternatives(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the schemas for which this one stands; raise if a value inside one may decide between them."""
        keywords = _keywords(schema)
        if not keywords & {"$ref", "anyOf"}:
            return
        if len(keywords) > 1:
            raise _Unknown
        if "$ref" in schema:
            yield self._at(schema["$ref"])
            return
        nested = [kind for each in schema["anyOf"] for kind in self._nested(each, ())]
        if len(nested) != len(set(nested)):
            raise _Unknown
        yield from schema["anyOf"]

    def _nested(self, schema: Any, within: tuple[int, ...]) -> list[str]:
        """Return the kinds of values with parts that a schema allows, once for each alternative."""
        if id(schema) in within:
            raise _Unknown
        if isinstance(schema, bool):
            return list(_NESTED) if schema else []
        within = (*within, id(schema))
        if "$ref" in schema:
            return self._nested(self._at(schema["$ref"]), within)
        if "anyOf" in schema:
            return [kind for each in schema["anyOf"] for kind in self._nested(each, within)]
        allowed = schema.get("type", list(_NESTED))
        return [kind for kind in ([allowed] if isinstance(allowed, str) else allowed) if kind in _NESTED]

    def _at(self, reference: str) -> Any:
        """Return the part of the schema at a reference."""
        found, (start, *steps) = self.whole, reference.split("/")
        if start != "#":
            raise _Unknown
        for step in steps:
            if not isinstance(found, dict) or step not in found or set(step) & set("~%"):
                raise _Unknown
            found = found[step]
        return found


def _parts(keyword: str, value: Any, name: str | None) -> list[tuple[Any, str | None]]:
    """Return the schemas of a keyword, each with the name of its properties."""
    match keyword:
        case "properties":
            return [(each, own) for own, each in value.items()]
        case "additionalProperties":
            return [(value, _ANY_NAME)]
        case "items":
            return [(value, name)]
        case "prefixItems":
            return [(each, name) for each in value]
    raise _Unknown


def _has_nested(keyword: str, value: Any) -> bool:
    """Return whether a keyword gives whole objects or arrays: their own parts decide what follows them."""
    values = {"enum": value, "const": [value]}.get(keyword, ())
    return any(isinstance(each, dict | list) for each in values)


def _keywords(schema: Any) -> frozenset[str]:
    if not isinstance(schema, dict):
        raise _Unknown
    return frozenset(schema) - _ANNOTATIONS
