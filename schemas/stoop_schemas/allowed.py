"""Whose images may lie where: one rule, held before a job is submitted and again before its image is read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.job import NAME_PATTERN

__all__ = ["AllowedBuckets"]

# a key may have `=` in it, but only behind the first `/`
_ENTRY: Final = re.compile(rf"(?:(?P<tenant>{NAME_PATTERN})=)?(?P<path>[A-Za-z0-9._-]{{3,63}}(?:/.*)?)", re.S)


@dataclass(frozen=True, slots=True)
class AllowedBuckets:
    """Buckets and prefixes, for all and by tenant; with no entry at all everything is allowed.

    A tenant that has entries of its own reads there and nowhere else. Every other job, and one without a tenant, reads
    where the general entries say: nowhere, if there are only entries of tenants.
    """

    general: tuple[str, ...] = ()
    tenants: Mapping[str, tuple[str, ...]] | None = None

    @classmethod
    def read(cls, entries: Iterable[str]) -> "AllowedBuckets":
        """Read `bucket`, `bucket/prefix`, `tenant=bucket` and `tenant=bucket/prefix`; raises `ValueError` for others.

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
        """Say whether a job of this tenant may read the object at `path`, its `bucket/key`."""
        if not self.general and not self.tenants:
            return True
        entries = (self.tenants or {}).get(tenant or "", self.general)
        return not _climbs(path) and any(_covers(entry, path) for entry in entries)


def _covers(entry: str, path: str) -> bool:
    return path == entry or path.startswith(entry.rstrip("/") + "/")


def _climbs(path: str) -> bool:
    """Say whether a step is `.` or `..`: some stores would resolve it, and so leave a prefix."""
    return any(step in (".", "..") for step in path.split("/"))
