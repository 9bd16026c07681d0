"""The rule for image locations by tenant, checked before a job is submitted and again before its image is read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stoop_schemas.job import NAME_PATTERN

__all__ = ["AllowedBuckets"]

# a key may contain `=`, but only after the first `/`
_ENTRY: Final = re.compile(rf"(?:(?P<tenant>{NAME_PATTERN})=)?(?P<path>[A-Za-z0-9._-]{{3,63}}(?:/.*)?)", re.S)


@dataclass(frozen=True, slots=True)
class AllowedBuckets:
    """Allowed buckets and prefixes, general and by tenant; without any entry, everything is allowed.

    A tenant with entries of its own may read only there. Every other job, with or without a tenant, may read only in
    the general entries; if there are none, it may read nothing.
    """

    general: tuple[str, ...] = ()
    tenants: Mapping[str, tuple[str, ...]] | None = None

    @classmethod
    def read(cls, entries: Iterable[str]) -> "AllowedBuckets":
        """Parse `bucket`, `bucket/prefix`, `tenant=bucket` and `tenant=bucket/prefix`. Raises `ValueError` for others.

        A prefix covers whole steps of a key: `bucket/a` covers `bucket/a/b` and not `bucket/ab`.
        """
        general: list[str] = []
        tenants: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            if not (match := _ENTRY.fullmatch(entry)) or _climbs(match["path"]):
                raise ValueError(f"{entry!r} must be bucket, bucket/prefix or tenant=bucket/prefix")
            if match["tenant"] is None:
                general.append(match["path"])
            else:
                tenants[match["tenant"]] = (*tenants.get(match["tenant"], ()), match["path"])
        return cls(tuple(general), tenants or None)

    def permits(self, path: str, tenant: str | None) -> bool:
        """Return whether a job of this tenant may read the object at `path`, written as `bucket/key`."""
        if not self.general and not self.tenants:
            return True
        entries = (self.tenants or {}).get(tenant or "", self.general)
        return not _climbs(path) and any(_covers(entry, path) for entry in entries)


def _covers(entry: str, path: str) -> bool:
    return path == entry or path.startswith(entry.rstrip("/") + "/")


def _climbs(path: str) -> bool:
    """Return whether a step is `.` or `..`, because some stores resolve it and so leave the prefix."""
    return any(step in (".", "..") for step in path.split("/"))
