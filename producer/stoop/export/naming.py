"""File names for images: turns an address that anybody may have written into a path that stays below a folder."""

import hashlib
import re
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["IMAGE_SUFFIXES", "digest", "flat", "identity", "own_name", "sample_key", "stem", "steps", "with_digest"]

IMAGE_SUFFIXES: Final = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})

_UNFIT: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\\\u2028\u2029]"
)  # these break a line, or separate paths on some system
_STEP_BYTES: Final = 240  # file systems take 255, which leaves room for a digest
_PATH_BYTES: Final = 1100  # a bucket and the longest key


def steps(address: str) -> list[str]:
    """Return the address as steps of a relative path: bucket and key, host and path, or the path of a file.

    No step is empty, `.` or `..`, and none contains a control character.
    """
    if address.startswith("data:"):
        return ["inline", f"{digest(address)}.{_inline_suffix(address)}"]
    scheme, colon, rest = address.partition("://")
    if not colon:
        path = address
    elif scheme == "s3":
        path = rest.partition("?versionId=")[0]
    else:
        parts = urlsplit(address)
        path = f"{parts.hostname or ''}/{unquote(parts.path)}"
    cleaned = [step for step in map(_fit, path.split("/")) if step not in ("", ".", "..")]
    if sum(len(step.encode()) + 1 for step in cleaned) > _PATH_BYTES:
        return [digest(address), cleaned[-1]]
    return cleaned or [digest(address)]


def own_name(address: str) -> str:
    """Return the address as a relative path, without the bucket if it is an object."""
    taken = steps(address)
    return "/".join(taken[1:] if address.startswith("s3://") and len(taken) > 1 else taken)


def digest(text: str) -> str:
    """Return 8 hex digits that identify the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def identity(name: str) -> str:
    """Return the name itself."""
    return name


def flat(name: str) -> str:
    """Return the path as a single step."""
    return name.replace("/", "_")


def stem(name: str) -> str:
    """Return the path without its suffix, as label files are named."""
    return str(PurePosixPath(name).with_suffix(""))


def sample_key(name: str) -> str:
    """Return the path without its suffix and without dots in its last step: WebDataset cuts at the first dot."""
    path = PurePosixPath(name)
    return str(path.with_name(path.stem.replace(".", "_")))


def with_digest(name: str, address: str) -> str:
    """Return another name for the image at the address, for use when its own name is taken."""
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}-{digest(address)}{path.suffix}"))


def _fit(step: str) -> str:
    step = _UNFIT.sub("_", step).strip()
    if len(step.encode()) <= _STEP_BYTES:
        return step
    suffix = PurePosixPath(step).suffix
    kept = step.encode()[: _STEP_BYTES - 40].decode(errors="ignore")
    return f"{kept}-{digest(step)}{suffix if suffix.lower() in IMAGE_SUFFIXES else ''}"


def _inline_suffix(address: str) -> str:
    kind = re.match(r"data:image/([a-z]+)", address)
    found = kind[1] if kind else "bin"
    return "jpg" if found == "jpeg" else found
