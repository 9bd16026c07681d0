"""NVIDIA's own client against the gateway's gRPC: the checks that a real Triton passes, too."""

import pytest

from tests.clients import test_triton
from tests.clients.test_triton import StartTriton, call, rows
from tests.examples.conftest import Deployment
from tests.gateway.conftest import GRPC, StartGateway
from tests.gateway.grpc.client import grpc_client
from tests.support.triton_server import TritonServer

__all__ = ["call", "rows"]

test_the_skills_of_moondream = test_triton.test_the_skills_of_moondream
test_the_skills_of_other_models = test_triton.test_the_skills_of_other_models
test_64_streams_at_once = test_triton.test_64_streams_at_once
test_a_caller_that_leaves_frees_its_row = test_triton.test_a_caller_that_leaves_frees_its_row


@pytest.fixture
def start_triton(start_gateway: StartGateway) -> StartTriton:
    """Starts a gateway in the place of a Triton; it has no HTTP routes of Triton's."""

    def start(deployment: Deployment) -> TritonServer:
        gateway = start_gateway(deployment, "--open", *GRPC)
        with grpc_client(gateway.grpc):
            return TritonServer("", gateway.grpc, gateway.server)

    return start


def test_errors_have_their_codes(
    streaming_deployment: Deployment, start_triton: StartTriton, call: test_triton.Call
) -> None:
    call(start_triton(streaming_deployment), "errors")
