"""`run.json`: the arguments of a run, so that only the same arguments can resume its folder."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from stoop.errors import ConfigError

__all__ = ["RUN_FILE", "Arguments", "find_arguments", "settle_arguments", "sync_folder", "write_whole"]

RUN_FILE: Final = "run.json"


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments that identify a run, and the random name from which its jobs' ids are made."""

    v: int = 1
    run: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    source: dict[str, Any]
    asked: dict[str, Any]


def find_arguments(folder: Path, source: Mapping[str, Any], asked: Mapping[str, Any]) -> Arguments | None:
    """Read the folder's `run.json`, or return None if it has none; writes nothing.

    Raises `ConfigError` if the folder holds another run, or results of an unknown origin.
    """
    path = folder / RUN_FILE
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Arguments)
    except FileNotFoundError:
        _refuse_strangers(folder)
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"cannot read {path}: {error}: choose another --out") from error
    for before, now in ((kept.source, _plain(source)), (kept.asked, _plain(asked))):
        _refuse_others(folder, before, now)
    return kept


def settle_arguments(folder: Path, source: Mapping[str, Any], asked: Mapping[str, Any]) -> Arguments:
    """Return `find_arguments`, or write `run.json` durably if the folder has none yet."""
    kept = find_arguments(folder, source, asked)
    if kept is not None:
        return kept
    wanted = Arguments(source=_plain(source), asked=_plain(asked))
    write_whole(folder / RUN_FILE, msgspec.json.format(msgspec.json.encode(wanted), indent=2))
    return wanted


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file atomically and durably."""
    draft = path.with_name(path.name + ".part")
    with draft.open("wb") as file:
        file.write(content + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that the names of its files survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values after a round trip through JSON, without those that are None."""
    plain: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode({name: value for name, value in values.items() if value is not None})
    )
    return plain


def _refuse_others(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in sorted({*before, *now}):
        was, wanted = before.get(name), now.get(name)
        if was == wanted:
            continue
        if name in ("content", "modified"):
            raise ConfigError(f"the source has changed since the run in {folder} began: choose another --out")
        raise ConfigError(
            f"{folder} holds another run, with {name} {was!r} and not {wanted!r}: choose another --out, or resume that"
            " run with its own arguments"
        )


def _refuse_strangers(folder: Path) -> None:
    strangers = sorted(path.name for path in folder.glob("*.jsonl"))
    if strangers:
        raise ConfigError(f"{folder} has {strangers[0]} and no {RUN_FILE}: choose an --out of its own")
