"""`GET /v1/models`: the models that workers serve, in OpenAI's shape with fields of our own."""

from typing import Literal

import msgspec
from starlette.responses import Response

from stoop.client.models import LiveModel
from stoop.gateway.answer import json_response
from stoop.gateway.call import Call
from stoop.gateway.models import check_model

__all__ = ["ModelCard", "ModelList", "list_models", "show_model"]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. `created` is when this gateway first saw it; `context_window` is in tokens.

    A job that names no model goes to a `default` one. `workers` is 0 once its workers have gone.
    """

    id: str
    created: int
    object: Literal["model"] = msgspec.field(default_factory=lambda: "model")
    owned_by: str = msgspec.field(default_factory=lambda: "stoop")
    skills: tuple[str, ...] = ()
    workers: int = msgspec.field(default_factory=int)
    default: bool = False
    context_window: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every model that has a worker, had one since the gateway started, or lost its last one by a crash."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


async def list_models(call: Call) -> Response:
    """Answer `GET /v1/models`."""
    models = await call.gateway.models.all()
    cards = [_card(name, model, since) for name, (model, since) in models.items() if call.key.may_use(model.name)]
    return json_response(call, ModelList(data=cards))


async def show_model(call: Call) -> Response:
    """Answer `GET /v1/models/{id}`, whose id may have slashes."""
    asked = call.request.path_params["id"]
    found = await call.gateway.models.find(asked)
    check_model(call.key, found.name)
    models = await call.gateway.models.all()
    since = next((since for model, since in models.values() if model is found), 0)
    return json_response(call, _card(asked, found, since))


def _card(name: str, model: LiveModel, since: int) -> ModelCard:
    return ModelCard(
        id=name,
        created=since,
        skills=model.skills,
        workers=model.workers,
        default=model.default,
        context_window=model.max_context,
    )
