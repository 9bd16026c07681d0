"""Answers questions before an inference: is the server ready, which models are there, which inputs do they take?"""

from importlib.metadata import version
from typing import Any, Final

from stoop.gateway.errors import ApiError
from stoop.gateway.grpc.messages import DATATYPES, message_class
from stoop.gateway.grpc.model_names import VERSION, allowed_models
from stoop.gateway.grpc.rpc_call import RpcCall
from stoop.gateway.health import living_workers
from stoop.gateway.kserve.inputs import INPUTS, OUTPUT

__all__ = [
    "list_models",
    "model_config",
    "model_metadata",
    "model_ready",
    "server_live",
    "server_metadata",
    "server_ready",
]

_EXTENSIONS: Final = ("model_configuration", "parameters")

_ServerLive: Final = message_class("ServerLiveResponse")
_ServerReady: Final = message_class("ServerReadyResponse")
_ServerMetadata: Final = message_class("ServerMetadataResponse")
_ModelReady: Final = message_class("ModelReadyResponse")
_ModelMetadata: Final = message_class("ModelMetadataResponse")
_ModelConfig: Final = message_class("ModelConfigResponse")
_RepositoryIndex: Final = message_class("RepositoryIndexResponse")


async def server_live(call: RpcCall, request: Any) -> Any:
    """Answer `ServerLive`: the process answers."""
    return _ServerLive(live=True)


async def server_ready(call: RpcCall, request: Any) -> Any:
    """Answer `ServerReady`: the gateway is not draining, Redis answers, and a worker is alive."""
    try:
        ready = not call.gateway.draining and await living_workers(call.gateway) > 0
    except ApiError:
        ready = False
    return _ServerReady(ready=ready)


async def server_metadata(call: RpcCall, request: Any) -> Any:
    """Answer `ServerMetadata`."""
    return _ServerMetadata(name="stoop", version=version("stoop"), extensions=_EXTENSIONS)


async def model_ready(call: RpcCall, request: Any) -> Any:
    """Answer `ModelReady`: a worker of the model is alive. A model unknown or forbidden to the key is not ready."""
    try:
        found = await allowed_models(call, request.name, request.version)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return _ModelReady(ready=False)
    return _ModelReady(ready=any(model.workers for model in found) and not call.gateway.draining)


async def model_metadata(call: RpcCall, request: Any) -> Any:
    """Answer `ModelMetadata`. All models have the same inputs; each skill reads only its own."""
    await allowed_models(call, request.name, request.version)
    answer = _ModelMetadata(name=request.name, versions=[VERSION], platform="stoop")
    for each in INPUTS.values():
        answer.inputs.add(name=each.name, datatype=each.datatype, shape=each.dims)
    answer.outputs.add(name=OUTPUT, datatype="BYTES", shape=[1])
    return answer


async def model_config(call: RpcCall, request: Any) -> Any:
    """Answer `ModelConfig`: decoupled, and without batches, which the workers make by themselves."""
    await allowed_models(call, request.name, request.version)
    answer = _ModelConfig()
    config = answer.config
    config.name, config.platform, config.backend = request.name, "stoop", "stoop"
    config.max_batch_size = 0
    for each in INPUTS.values():
        config.input.add(name=each.name, data_type=_number_of(each.datatype), dims=each.dims, optional=each.optional)
    config.output.add(name=OUTPUT, data_type=_number_of("BYTES"), dims=[1])
    config.model_transaction_policy.decoupled = True
    return answer


async def list_models(call: RpcCall, request: Any) -> Any:
    """Answer `RepositoryIndex`: the models that have a worker, or had one, and that the caller's key may use."""
    answer = _RepositoryIndex()
    for name, (model, _) in (await call.gateway.models.all()).items():
        if not call.key.may_use(model.name):
            continue
        if model.workers:
            answer.models.add(name=name, version=VERSION, state="READY")
        elif not request.ready:
            answer.models.add(name=name, version=VERSION, state="UNAVAILABLE", reason="no worker serves it now")
    return answer


def _number_of(datatype: str) -> int:
    return DATATYPES["TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"]
