"""The options and requests that a decoder refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Chat, Message, Request, Sampling
from stoop_worker.errors import ConfigError
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import AdapterOptions, LoadOptions
from tests.support.tiny_decoder import LLAMA, write_decoder, write_qwen_vl


@pytest.fixture(params=["decoder", "qwen_vl"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_decoder(tmp_path, LLAMA) if request.param == "decoder" else write_qwen_vl(tmp_path)


@pytest.mark.parametrize(
    ("options", "flag"),
    [({"fp8_linears": True}, "--fp8-linears"), ({"adapters": AdapterOptions(Path("adapters"))}, "--adapters")],
)
def test_options_that_only_moondream_follows_are_refused(folder: Path, options: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        load_model(folder, LoadOptions(torch.device("cpu"), torch.float32, **options))


def test_an_adapter_is_refused_by_its_name(folder: Path) -> None:
    family = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    chat = Chat((Message("user", ("hello",)),))
    with pytest.raises(RequestInvalid, match="'birds'"):
        family.prepare(Request("1", chat, (), Sampling(), adapter="birds"))
