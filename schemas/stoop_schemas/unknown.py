"""Refuses a caller's names that no job has, with the name that was probably meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.skill import Settings

__all__ = ["meant", "refuse_unknown_fields", "refuse_unknown_settings"]


def refuse_unknown_fields(names: Iterable[str]) -> None:
    """Raise `Rejected` (invalid_argument) if one of the names is not a field of a job."""
    _refuse("field of the job", names, Job.__struct_fields__)


def refuse_unknown_settings(names: Iterable[str]) -> None:
    """Raise `Rejected` (invalid_argument) if one of the names is not a setting."""
    _refuse("setting", names, Settings.__struct_fields__)


def meant(unknown: str, known: Sequence[str]) -> str:
    """Return a question with the nearest known name, to add to a message; "" if none is near."""
    near = get_close_matches(str(unknown), known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _refuse(kind: str, names: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    problem = f"unknown {kind}: {', '.join(map(repr, unknown))}"
    if unknown[0] in Settings.__struct_fields__:
        remedy = f"; it goes into the settings: settings={{{unknown[0]!r}: …}}"
    elif unknown[0] in Job.__struct_fields__:
        remedy = "; it is a field of the job, not one of the settings"
    else:
        remedy = f"{meant(unknown[0], known)}; known are {', '.join(known)}"
    raise Rejected(FailureCode.INVALID_ARGUMENT, problem + remedy)
