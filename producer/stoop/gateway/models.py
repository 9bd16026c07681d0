"""The names of models: those of registered workers, those seen before, and aliases; and the routes that list them."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from stoop.client.job_client import JobClient
from stoop.client.models import LiveModel
from stoop.gateway.errors import ApiError
from stoop.gateway.keys import ApiKey
from stoop_schemas.skill import Skill

__all__ = ["Models", "check_model", "split_adapter"]

_FRESH_SECONDS: Final = 1.0
_CLOUD: Final = "moondream/"
"""A prefix that Moondream's own service accepts before a model's name."""


_FINE_TUNE: Final = re.compile(r"(.+)/([^/@]+@[0-9]+)")


def split_adapter(asked: str) -> tuple[str, str | None]:
    """Split the name of a fine-tune, `model/id@step`, into the model's name and the adapter's id."""
    found = _FINE_TUNE.fullmatch(asked)
    return (found[1], found[2]) if found else (asked, None)


def check_model(key: ApiKey, model: str | None) -> None:
    """Raise an `ApiError` (403) unless a job of the key may name this model; None is the default one."""
    if not key.may_use(model):
        raise ApiError(403, "model_forbidden", f"this API key may use only {', '.join(key.models)}", param="model")


class Models:
    """The models that callers may name.

    Remembers models whose workers have gone, and knows those whose workers crashed before: jobs wait for the next one.
    """

    def __init__(
        self, client: JobClient, aliases: Mapping[str, str | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._aliases = aliases
        self._clock = clock
        self._look_at = 0.0
        self._seen: dict[str, tuple[LiveModel, int]] = {}

    async def resolve(self, asked: str | None) -> str | None:
        """Return the short name for a job, or None for the default model.

        Raises an `ApiError` (404, `model_not_found`) for a name that no worker has had.
        """
        if asked is None:
            return None
        asked = split_adapter(asked)[0].removeprefix(_CLOUD)
        if asked in self._aliases:
            return self._aliases[asked]
        found = await self.find(asked)
        return found.name

    async def find(self, asked: str) -> LiveModel:
        """Return the model of this id, or of this checkpoint; raises an `ApiError` (404)."""
        models = await self.all()
        if asked in models:
            return models[asked][0]
        for model, _ in models.values():
            if asked in model.loaded or asked == model.name:
                return model
        # the name may be new
        models = await self.all(fresh=True)
        if asked in models:
            return models[asked][0]
        known = ", ".join([*models, *self._aliases]) or "none"
        raise ApiError(404, "model_not_found", f"no worker serves the model {asked[:64]!r}; known are {known}")

    async def skills(self, asked: str | None) -> frozenset[str]:
        """Return the skills of the model that a job of this name runs on; raises an `ApiError` (404)."""
        short = await self.resolve(asked)
        models = await self.all()
        return frozenset(
            skill
            for model, _ in models.values()
            if (model.default if short is None else model.name == short)
            for skill in model.skills
        )

    async def check(self, asked: str | None, skill: Skill, purpose: str) -> None:
        """Raise an `ApiError` (404, `model_not_found`) unless the model of this name has the skill."""
        if skill not in await self.skills(asked):
            raise ApiError(404, "model_not_found", f"no worker serves a model for {purpose}", param="model")

    async def all(self, *, fresh: bool = False) -> Mapping[str, tuple[LiveModel, int]]:
        """Return every model by its id, with the Unix second in which this gateway first saw it."""
        if fresh or self._clock() >= self._look_at:
            # a worker whose lease ran out may only have been cut off: a job for it waits, and is not refused
            known = await self._client.models(lapsed=True)
            self._look_at = self._clock() + _FRESH_SECONDS
            for name, (model, since) in self._seen.items():
                self._seen[name] = (replace(model, workers=0, permits=0, in_flight=0), since)
            for model in known:
                name = _id_of(model)
                _, since = self._seen.get(name, (model, int(time.time())))
                self._seen[name] = (model, since)
        return self._seen


def _id_of(model: LiveModel) -> str:
    """Return the model's short name; for one without, the last step of its checkpoint's path."""
    if model.name is not None:
        return model.name
    return model.loaded[0].rstrip("/").rpartition("/")[2] if model.loaded else "default"
