"""The options and requests that a decoder refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Chat, Message, Part, Request, Sampling
from stoop_worker.errors import ConfigError
from stoop_worker.images import Image
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


BARE = "{% for message in messages %}{{ message.content }}{% endfor %}"
BARE_PARTS = "{% for part in messages[0].content %}{{ part.text or '<|image_pad|>' }}{% endfor %}"


def test_messages_of_which_the_template_makes_an_empty_prompt_are_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(BARE)
    family = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    with pytest.raises(RequestInvalid, match="empty prompt"):
        family.prepare(Request("1", Chat((Message("user", ("",)),)), (), Sampling()))


def test_a_prompt_that_would_end_with_an_image_is_refused(tmp_path: Path) -> None:
    (write_qwen_vl(tmp_path) / "chat_template.jinja").write_text(BARE_PARTS)
    family = load_model(tmp_path, LoadOptions(torch.device("cpu"), torch.float32))
    image = Image.of(np.zeros((64, 64, 3), dtype=np.uint8))
    seen = Chat((Message("user", (Part.IMAGE, "what is that")),))
    assert family.prepare(Request("1", seen, (image,), Sampling()))
    unasked = Chat((Message("user", ("what is that", Part.IMAGE)),))
    with pytest.raises(RequestInvalid, match="ends with an image"):
        family.prepare(Request("2", unasked, (image,), Sampling()))
