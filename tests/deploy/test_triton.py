"""The model repository for Triton follows the table of inputs, and its model answers through Triton's own interface.

`tests/clients/test_triton.py` runs it in a real Triton.
"""

import importlib.util
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.triton.__main__ import CONFIG, config_text
from stoop import AsyncClient
from stoop.gateway.kserve.triton_model import TritonModel
from tests.producer.scripted import ScriptedTransport, answer

FINAL = 1


def test_the_configuration_is_that_of_the_table() -> None:
    assert CONFIG.read_text(encoding="utf-8") == config_text(), "run python -m deploy.triton"


@dataclass
class TritonError:
    message: str
    code: int

    INVALID_ARG = 3


@dataclass
class Response:
    output_tensors: list[Any]
    error: Any = None


@dataclass
class Request:
    """A request of Triton, which is its own sender of responses; each is kept with its flags."""

    given: dict[str, np.ndarray]
    sent: list[tuple[Response | None, int]] = field(default_factory=list)

    def get_response_sender(self) -> "Request":
        return self

    def request_id(self) -> str:
        return "r1"

    def is_cancelled(self) -> bool:
        return False

    def inputs(self) -> list[Any]:
        return [SimpleNamespace(name=lambda n=n: n, as_numpy=lambda v=v: v) for n, v in self.given.items()]

    def send(self, response: Response | None = None, flags: int = 0) -> None:
        self.sent.append((response, flags))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model, loaded as Triton does, on a queue in memory."""
    utils = ModuleType("triton_python_backend_utils")
    utils.InferenceResponse = Response  # type: ignore[attr-defined]
    utils.Tensor = lambda name, value: (name, value)  # type: ignore[attr-defined]
    utils.TritonError = TritonError  # type: ignore[attr-defined]
    utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    spec = importlib.util.spec_from_file_location("model", CONFIG.parent / "1" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    client = AsyncClient(transport=ScriptedTransport(answer), redis_url="redis://unused")
    monkeypatch.setattr(module, "TritonModel", lambda: TritonModel(client))
    loaded = module.TritonPythonModel()
    loaded.initialize({})
    return loaded


def text(value: str | bytes) -> np.ndarray:
    return np.array([value.encode() if isinstance(value, str) else value], dtype=np.object_)


async def test_requests_are_answered_side_by_side_and_each_ends_once(model: Any) -> None:
    inputs = {"SKILL": text("query"), "QUESTION": text("How many?"), "IMAGE": text("data:image/png;base64,AAAA")}
    whole, streamed = Request(inputs), Request({**inputs, "STREAM": np.array([True])})
    await model.execute([whole, streamed])
    for request in (whole, streamed):
        assert [flags for _, flags in request.sent] == [0] * (len(request.sent) - 1) + [FINAL]
        assert request.sent[-1][0] is None
        last = request.sent[-2][0]
        assert last is not None
        [(name, value)] = last.output_tensors
        assert (name, value.shape) == ("TEXT_OUTPUT", (1,))
        assert msgspec.json.decode(value[0])["answer"] == "two red circles"
    assert len(whole.sent) == 2 < len(streamed.sent)


async def test_an_error_is_the_last_response(model: Any) -> None:
    """A response after an error may crash Triton."""
    request = Request({"SKILL": text("query")})
    await model.execute([request])
    [(response, flags)] = request.sent
    assert response is not None and flags == FINAL
    assert response.error == TritonError("malformed: query needs a question: give `question`", TritonError.INVALID_ARG)


async def test_it_is_ready_while_a_worker_lives(model: Any) -> None:
    assert await model.is_ready() is True
