"""The models that callers may name: those of the workers, their aliases, and one name for the default model."""

from collections.abc import Sequence
from typing import Final

from stoop.client.models import LiveModel
from stoop.gateway.errors import ApiError
from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.kserve.inputs import MODEL_NAME
from stoop.gateway.models import Models, check_model

__all__ = ["VERSION", "allowed_models", "model_for_job"]

VERSION: Final = "1"
"""The only version of every model."""


async def model_for_job(models: Models, name: str, version: str, given: str | None) -> str | None:
    """Return the name for a job, None for the default model. `given` is the one among the inputs, if there is one.

    Raises an `ApiError` (404) if no worker has served the model, or (400) if two models are named.
    """
    if not await _is_default(models, name):
        await _find_models(models, name, version)
        if given not in (None, name):
            problem = "MODEL names another model than the request's model_name: leave MODEL out"
            raise ApiError(400, "invalid_value", problem, param="MODEL")
        return name
    if given is None:
        await _find_models(models, name, version)
    return given


async def allowed_models(call: RpcCall, name: str, version: str) -> Sequence[LiveModel]:
    """Return the models of this name and version; raises an `ApiError`: 404 if there is none, 403 if forbidden."""
    models = call.gateway.models
    found = await _find_models(models, name, version)
    check_model(call.key, None if await _is_default(models, name) else await models.resolve(name))
    return found


async def _find_models(models: Models, name: str, version: str = "") -> Sequence[LiveModel]:
    """Return the models of this name and version, at least one; raise an `ApiError` (404) if there is none.

    A model whose workers have gone has 0 of them.
    """
    if version not in ("", VERSION):
        problem = f"there is no version {version[:64]!r} of a model: leave the version out, or ask for {VERSION}"
        raise ApiError(404, "model_not_found", problem)
    short = None if await _is_default(models, name) else await models.resolve(name)
    for fresh in (False, True):  # a worker may have come just now
        everything = [model for model, _ in (await models.all(fresh=fresh)).values()]
        found = [model for model in everything if (model.default if short is None else model.name == short)]
        if found:
            break
    else:
        raise ApiError(404, "model_not_found", f"no worker serves the model {name[:64]!r}: start one, and ask again")
    return found


async def _is_default(models: Models, name: str) -> bool:
    """Return whether this is the name of the default model, and no worker's own."""
    return name == MODEL_NAME and name not in await models.all()
