"""The messages of the protocol, made from its compiled description.

They live in a pool of their own: in protobuf's common one, other packages may have messages of the same names.
`kserve.binpb` is `kserve.proto`, compiled.
"""

from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from stoop.gateway.errors import ApiError

__all__ = ["DATATYPES", "GRPC_NAME", "message_class", "read_message"]

GRPC_NAME: Final = "inference.GRPCInferenceService"
_PACKAGE: Final = "inference"


def _read_pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    compiled = files("stoop.gateway.grpc").joinpath("kserve.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


_POOL: Final = _read_pool()


def message_class(name: str) -> Any:
    """Return the class of a message, such as `ModelInferRequest`. Protobuf's classes have no types to check."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def read_message(written: bytes, message: Any) -> Any:
    """Fill the message and return it; raise an `ApiError` (400) if the bytes are not such a message."""
    try:
        message.ParseFromString(written)
    except DecodeError:
        kind = message.DESCRIPTOR.full_name
        raise ApiError(
            400, "invalid_value", f"the bytes are not a valid {kind}: use the messages of kserve.proto"
        ) from None
    return message


DATATYPES: Final[dict[str, int]] = {
    name: value.number for name, value in _POOL.FindEnumTypeByName(f"{_PACKAGE}.DataType").values_by_name.items()
}
"""The numbers of the configuration's datatypes by their names."""
