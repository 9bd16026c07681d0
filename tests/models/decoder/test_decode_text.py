"""The decode step in fewer launches against the plain one, on tiny models of every family that has it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Chat, Finished, Message, Part, Request, Sampling
from stoop_worker.images import Image
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.decoder.model import load_decoder
from stoop_worker.models.loading.download import Source, locate, snapshot
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.qwen_vl.family import QwenVLFamily
from stoop_worker.models.qwen_vl.model import load_qwen_vl
from tests.engine.micro import drain, ending
from tests.support.tiny_decoder import LLAMA, QWEN3, write_decoder, write_qwen_vl

OPTIONS = LoadOptions(torch.device("cpu"), torch.float32)
CONFIG = EngineConfig(max_context=512, token_budget=160, max_batch=4)


def found(folder: Path) -> Source:
    return locate(folder, None, snapshot)


def texts(family: DecoderFamily, requests: list[Request]) -> list[str]:
    outputs = drain(Engine(family, CONFIG), requests)
    ends = [ending(outputs, request.id) for request in requests]
    assert all(isinstance(end, Finished) and end.usage.output_tokens > 1 for end in ends)
    return [end.text for end in ends if isinstance(end, Finished)]


def chats(count: int) -> list[Request]:
    sampling = Sampling(temperature=0.0, max_tokens=40)
    return [Request(str(n), Chat((Message("user", ("cat " * (n + 1),)),)), (), sampling) for n in range(count)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("config", [LLAMA, QWEN3], ids=["llama", "qwen3"])
def test_a_decoder_writes_the_same_text(tmp_path: Path, config: dict[str, Any], count: int) -> None:
    model = load_decoder(found(write_decoder(tmp_path, config)), OPTIONS)
    plain, fused = (texts(DecoderFamily(model, fused=fused), chats(count)) for fused in (False, True))
    assert fused == plain


def test_a_model_with_three_axes_writes_the_same_text_about_an_image(tmp_path: Path) -> None:
    model = load_qwen_vl(found(write_qwen_vl(tmp_path)), OPTIONS)
    picture = Image.of((torch.arange(64 * 96 * 3) % 251).view(64, 96, 3).to(torch.uint8).numpy())
    asked = Chat((Message("user", (Part.IMAGE, "what is this?")),))
    requests = [Request("seen", asked, (picture,), Sampling(temperature=0.0, max_tokens=40)), *chats(1)]
    plain, fused = (texts(QwenVLFamily(model, fused=fused), requests) for fused in (False, True))
    assert fused == plain
