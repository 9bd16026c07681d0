"""The messages beside Triton's own: each name, number and type, and the compiled file beside its source."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from stoop.gateway.grpc.messages import message_class
from stoop.gateway.grpc.rpcs import RPCS, STREAM
from tests.project.modules import ROOT

service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
model_config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")

FOLDER = ROOT / "producer/stoop/gateway/grpc"


def fields(message: Any) -> dict[str, tuple[Any, ...]]:
    """The number, type and message of each field, by its name."""
    return {
        each.name: (each.number, each.type, each.is_repeated, each.message_type and each.message_type.full_name)
        for each in message.fields
    }


def compiled() -> Any:
    [file] = descriptor_pb2.FileDescriptorSet.FromString((FOLDER / "kserve.binpb").read_bytes()).file
    return file


def test_every_message_is_a_part_of_tritons() -> None:
    for message in compiled().message_type:
        module = model_config_pb2 if hasattr(model_config_pb2, message.name) else service_pb2
        pairs = [(message_class(message.name).DESCRIPTOR, getattr(module, message.name).DESCRIPTOR)]
        while pairs:
            ours, theirs = pairs.pop()
            assert fields(ours).items() <= fields(theirs).items(), ours.full_name
            pairs += [(each, theirs.nested_types_by_name[each.name]) for each in ours.nested_types]
    [ours] = compiled().enum_type
    assert {each.name: each.number for each in ours.value} == dict(model_config_pb2.DataType.items())


def test_every_rpc_of_the_service_is_served_as_triton_has_it() -> None:
    [service] = compiled().service
    theirs = service_pb2.DESCRIPTOR.services_by_name[service.name].methods_by_name
    for method in service.method:
        expected = theirs[method.name]
        assert method.input_type == f".{expected.input_type.full_name}"
        assert method.output_type == f".{expected.output_type.full_name}"
    assert {method.name for method in service.method} == {rpc.name for rpc in (*RPCS, STREAM)}


def test_the_compiled_file_is_that_of_its_source(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    written = tmp_path / "kserve.binpb"
    assert protoc.main(["", "-I", str(FOLDER), f"--descriptor_set_out={written}", "kserve.proto"]) == 0
    again = descriptor_pb2.FileDescriptorSet.FromString(written.read_bytes())
    assert list(again.file) == [compiled()], "compile kserve.proto as its first lines say"
