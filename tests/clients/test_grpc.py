"""NVIDIA's own client against the gateway's gRPC: the checks that a real Triton passes, too."""

import pytest

from tests.clients import test_triton
from tests.clients.test_triton import BeginTriton, call, rows
from tests.examples.conftest import Town
from tests.gateway.conftest import GRPC, Begin
from tests.gateway.grpc.asked import asking
from tests.support.triton_server import TritonServer

__all__ = ["call", "rows"]

test_the_skills_of_moondream = test_triton.test_the_skills_of_moondream
test_the_skills_of_other_models = test_triton.test_the_skills_of_other_models
test_64_streams_at_once = test_triton.test_64_streams_at_once
test_a_caller_that_leaves_frees_its_row = test_triton.test_a_caller_that_leaves_frees_its_row


@pytest.fixture
def begin_triton(begin: Begin) -> BeginTriton:
    """Starts a gateway in the place of a Triton; it has no HTTP routes of Triton's."""

    def start(town: Town) -> TritonServer:
        serving = begin(town, "--open", *GRPC)
        with asking(serving.grpc):
            return TritonServer("", serving.grpc, serving.server)

    return start


def test_errors_have_their_codes(teller: Town, begin_triton: BeginTriton, call: test_triton.Call) -> None:
    call(begin_triton(teller), "errors")
