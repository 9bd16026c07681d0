"""The rules for the settings of a job."""

import re
from typing import Any, Final

import msgspec

from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.response_format import SCHEMA_LIMIT, JsonSchemaFormat
from stoop_schemas.skill import ADAPTER_PATTERN, REGEX_LIMIT, SETTING_RANGES, STOP_LIMIT, STOPS_LIMIT, Settings
from stoop_schemas.skills import TEXT_OUTPUTS, spec_of

__all__ = ["check_settings"]

_NONE: Final = Settings()
_ADAPTER: Final = re.compile(ADAPTER_PATTERN)


def check_settings(settings: Settings, skill: str) -> None:
    """Raise `Rejected` for settings that a job of this skill may not have."""
    if settings == _NONE:
        return
    stops = settings.stop or []
    if len(stops) > STOPS_LIMIT or not all(0 < len(stop) <= STOP_LIMIT for stop in stops):
        raise _invalid(f"settings.stop takes up to {STOPS_LIMIT} strings of 1 to {STOP_LIMIT} characters", "stop")
    if settings.adapter is not None and not _ADAPTER.fullmatch(settings.adapter):
        raise _invalid("settings.adapter must be an id: 1 to 128 characters of A-Z a-z 0-9 . _ @ : -", "adapter")
    for field, (low, high) in SETTING_RANGES.items():
        value = getattr(settings, field)
        if value is not None and not low <= value <= high:
            raise _invalid(f"settings.{field} is {value}: it must be from {low} to {high}", field)
    _check_pixels(settings)
    _check_form(settings, skill)


def _check_pixels(settings: Settings) -> None:
    least, most = settings.min_pixels, settings.max_pixels
    if least is not None and most is not None and least > most:
        raise _invalid(f"settings.min_pixels is {least}, which is more than settings.max_pixels, {most}", "min_pixels")


def _check_form(settings: Settings, skill: str) -> None:
    form, regex = settings.response_format, settings.regex
    if regex is None and form is None:
        return
    if regex is not None and form is not None:
        raise _invalid("settings.response_format and settings.regex exclude each other: leave one out", "regex")
    if spec_of(skill).output not in TEXT_OUTPUTS:
        message = f"{skill} writes no text: leave settings.response_format and settings.regex out"
        raise _invalid(message, "response_format" if regex is None else "regex")
    if regex is not None and not 0 < len(regex) <= REGEX_LIMIT:
        raise _invalid(f"settings.regex must have 1 to {REGEX_LIMIT} characters", "regex")
    if isinstance(form, JsonSchemaFormat) and _json_size(form.json_schema.schema) > SCHEMA_LIMIT:
        message = f"the schema in settings.response_format has more than {SCHEMA_LIMIT} bytes as JSON"
        raise _invalid(message, "response_format")


def _json_size(schema: dict[str, Any]) -> int:
    try:
        return len(msgspec.json.encode(schema))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the schema in settings.response_format cannot be written as JSON: {error}"
        raise _invalid(message, "response_format") from error


def _invalid(message: str, setting: str) -> Rejected:
    return Rejected(FailureCode.INVALID_ARGUMENT, message, f"settings.{setting}")
