"""The models that have a short name, read from `catalog.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from stoop_worker.errors import ConfigError

__all__ = ["Catalog", "Chosen", "Entry", "read_catalog"]

_SAMPLING = {"temperature": float, "top_p": float, "top_k": int, "max_tokens": int}
_CONTEXT = 32_768  # of a model that the catalog does not know


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: where its weights are, its family, and its limits.

    `context` is the default of `--max-context`, in tokens. `sampling` has the model's own defaults: temperature, top_p,
    top_k and max_tokens.
    """

    name: str
    repository: str
    family: str
    context: int
    licence: str
    revision: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model to load: a folder, a file or a repository, the revision to pin, and its `entry` if it has one."""

    source: str
    revision: str | None
    entry: Entry | None = None

    @property
    def name(self) -> str | None:
        """The short name; None for a model that the catalog does not know."""
        return self.entry.name if self.entry else None

    @property
    def context(self) -> int:
        """The default of `--max-context`."""
        return self.entry.context if self.entry else _CONTEXT


@dataclass(frozen=True, slots=True)
class Catalog:
    """The entries by their short names."""

    entries: Mapping[str, Entry]

    def choose(self, model: str, revision: str | None = None) -> Chosen:
        """Resolve `--model`: a path that exists, a short name, or a repository.

        A given `revision` wins over the catalog's. Any other value is passed on, and the loader refuses it.
        """
        if Path(model).exists():
            return Chosen(model, revision)
        entry = self.entries.get(model) or self._of_repository(model)
        if entry is None:
            return Chosen(model, revision)
        return Chosen(entry.repository, revision or entry.revision, entry)

    def _of_repository(self, repository: str) -> Entry | None:
        return next((entry for entry in self.entries.values() if entry.repository == repository), None)


def read_catalog(text: str | None = None) -> Catalog:
    """Read the catalog that is part of the package, or `text`; raises `ConfigError` for an invalid entry."""
    if text is None:
        text = resources.files("stoop_worker.models").joinpath("catalog.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return Catalog({name: _entry(name, table) for name, table in tables.items()})


def _entry(name: str, table: Mapping[str, Any]) -> Entry:
    known = {each.name for each in fields(Entry)} - {"name"}
    needed = {"repository", "family", "context", "licence"}
    if unknown := set(table) - known:
        raise ConfigError(f"catalog.toml, {name}: unknown fields: {', '.join(sorted(unknown))}")
    if missing := needed - set(table):
        raise ConfigError(f"catalog.toml, {name}: {', '.join(sorted(missing))} must be there")
    sampling = table.get("sampling", {})
    if wrong := [key for key, value in sampling.items() if not isinstance(value, _SAMPLING.get(key, ()))]:
        raise ConfigError(f"catalog.toml, {name}: sampling has no field {', '.join(wrong)}")
    return Entry(name=name, **table)
