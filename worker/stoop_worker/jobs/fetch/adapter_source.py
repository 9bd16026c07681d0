"""Brings LoRA adapters from the place that the worker's operator names. A job chooses an id, never an address.

The place is an address with placeholders: `{id}` is the adapter's id, `{name}` and `{step}` its parts around an "@".

    s3://bucket/adapters/{id}.safetensors
    https://example.org/adapters/{id}.pt                          also one that answers {"url": "https://..."}
    hf://owner/repository@<commit>/adapters/{id}.safetensors      a repository of Hugging Face
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.errors import ImageError, ImageNotFound, ImageTimeout, ImageTooLarge, StorageUnavailable

__all__ = ["AdapterSource", "Hub", "Read", "check_place", "hub_file"]

Read = Callable[[str], Awaitable[bytes]]
"""Returns the bytes at an address; raises an `ImageError`."""

Hub = Callable[[str, str, str], bytes]
"""Takes a repository, a commit and a file's path there; returns the file's bytes, or raises an `ImageError`."""

_HUB: Final = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})/(?P<file>.+)")
_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_PLACEHOLDERS: Final = {"id", "name", "step"}
_MOST_JSON: Final = 1 << 16


def check_place(place: str) -> str:
    """Return the place; raises `ValueError` unless it is an address with a placeholder for the adapter's id."""
    if not place.startswith(("s3://", "https://")) and not _HUB.fullmatch(place):
        raise ValueError("give a folder, or s3://bucket/…{id}…, https://host/…{id}… or hf://owner/repo@commit/…{id}…")
    placeholders = set(_PLACEHOLDER.findall(place))
    if not placeholders & {"id", "name"} or not placeholders <= _PLACEHOLDERS:
        raise ValueError("the address must have {id} where an adapter's id goes, or {name} and {step} for its parts")
    return place


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """Fetches adapters from one place, whose scheme decides which of the readers is used.

    `https` sends the operator's header, `linked` reads the addresses that a server answered with.
    """

    place: str
    s3: Read
    https: Read
    linked: Read
    hub: Hub

    async def fetch(self, adapter: str) -> bytes:
        """Return an adapter's file; raises `Rejected`, in a form that runs the job again if the store failed."""
        try:
            return await self._fetch(adapter)
        except (StorageUnavailable, ImageTimeout) as error:
            raise Rejected(
                FailureCode.STORAGE_UNAVAILABLE, f"the adapter {adapter!r} could not be fetched: {error}"
            ) from error
        except ImageNotFound as error:
            raise Rejected(FailureCode.INVALID_ARGUMENT, f"there is no adapter {adapter!r}: {error}") from error
        except ImageTooLarge as error:
            raise Rejected(
                FailureCode.INVALID_ARGUMENT, f"the adapter {adapter!r} is over the worker's --adapter-cache-bytes"
            ) from error
        except ImageError as error:
            raise Rejected(FailureCode.INVALID_ARGUMENT, f"the adapter {adapter!r} cannot be read: {error}") from error

    async def _fetch(self, adapter: str) -> bytes:
        if match := _HUB.fullmatch(self.place):
            file = _filled(match["file"], adapter, str)
            return await asyncio.to_thread(self.hub, match["repository"], match["revision"], file)
        if self.place.startswith("s3://"):
            return await self.s3(_filled(self.place, adapter, str))
        found = await self.https(_filled(self.place, adapter, lambda part: quote(part, safe="")))
        link = _link(found)
        return found if link is None else await self.linked(link)


def hub_file(repository: str, revision: str, file: str) -> bytes:
    """Download one file of a repository of Hugging Face, outside its cache; blocks."""
    import huggingface_hub  # slow to import, and needed for hf:// alone
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    with tempfile.TemporaryDirectory() as folder:
        try:
            found = huggingface_hub.hf_hub_download(repository, file, revision=revision, local_dir=folder)
            return Path(found).read_bytes()
        except EntryNotFoundError as error:
            raise ImageNotFound(f"{repository} has no file {file} at {revision[:12]}") from error
        except (HfHubHTTPError, OSError, ValueError) as error:
            raise StorageUnavailable(f"Hugging Face did not give {repository} ({type(error).__name__})") from error


def _filled(place: str, adapter: str, spelled: Callable[[str], str]) -> str:
    name, _, step = adapter.partition("@")
    parts = {"id": adapter, "name": name, "step": step}
    if {name, step} & {".", ".."}:
        raise ImageNotFound("an id must not leave the place of adapters")
    return _PLACEHOLDER.sub(lambda found: spelled(parts[found[1]]), place)


def _link(found: bytes) -> str | None:
    """Return the address in an answer {"url": ...}; None if the answer is the file itself."""
    if len(found) > _MOST_JSON or not found.lstrip().startswith(b"{"):
        return None
    try:
        document = json.loads(found)
    except ValueError:
        return None
    url = document.get("url")
    return url if isinstance(url, str) else None
