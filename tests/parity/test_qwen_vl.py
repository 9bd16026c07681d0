"""Qwen3-VL against transformers on a tiny random checkpoint: pixels, positions, embeddings, logits, greedy text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.inputs import MediaInput
from stoop_worker.engine.request import Chat, Finished, Media, Message, Part, Request, Sampling
from stoop_worker.engine.tensors import Given
from stoop_worker.images import Image, PatchRule, fit, fitting_size
from stoop_worker.models.decoder import text
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.qwen_vl.family import QwenVLFamily
from stoop_worker.models.qwen_vl.vision import patchify
from tests.engine.micro import drain, ending
from tests.support.model_run import ModelRun
from tests.support.tiny_decoder import write_qwen_vl

SIZES = [(100, 60), (70, 170), (64, 64)]
CHATS = {
    "one": Chat((Message("user", (Part.IMAGE, "what is it")),)),
    "between": Chat((Message("user", ("the ", Part.IMAGE, " cat ", Part.IMAGE, " sat")),)),
    "turns": Chat(
        (
            Message("system", ("the mat",)),
            Message("user", (Part.IMAGE, Part.IMAGE, "which")),
            Message("assistant", ("that",)),
            Message("user", ("and ", Part.IMAGE, "?")),
        )
    ),
    "none": Chat((Message("user", ("what is the answer",)),)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen_vl(tmp_path_factory.mktemp("vl"))


@pytest.fixture(scope="module")
def family(folder: Path) -> QwenVLFamily:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, QwenVLFamily)
    return model


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def photo(number: int) -> Image:
    width, height = SIZES[number]
    random = np.random.default_rng(number)
    coarse = random.integers(0, 256, (height // 7, width // 7, 3), dtype=np.uint8)
    return Image.of(np.asarray(Pillow.fromarray(coarse).resize((width, height))))


def media_of(chat: Chat, rule: PatchRule) -> tuple[Media, ...]:
    count = sum(part is Part.IMAGE for message in chat.messages for part in message.content)
    return tuple(fit(photo(number), rule) for number in range(count))


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_pixels_are_those_of_transformers_to_the_level(family: QwenVLFamily, number: int) -> None:
    # it imports much, and only this process needs it
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    config = family._config.vision
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": config.rule.min_pixels, "longest_edge": config.rule.max_pixels},
        patch_size=16,
        merge_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    expected = processor(Pillow.fromarray(photo(number).pixels), return_tensors="pt")
    fitted = fit(photo(number), config.rule)
    ours = patchify(torch.from_numpy(fitted.pixels), config)
    theirs = expected["pixel_values"].view(len(ours), 3, 2, 16, 16)
    levels = (ours.view(len(ours), 3, 1, 16, 16) - theirs) * 127.5
    assert levels.abs().max() < 0.01
    assert expected["image_grid_thw"].tolist() == [[1, fitted.pixels.shape[0] // 16, fitted.pixels.shape[1] // 16]]


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(850, 600, 513), (640, 480, 300), (1920, 1080, 2040), (378, 378, 144), (100, 2000, 186), (32, 32, 64)],
)
def test_sizes_are_those_of_the_released_processor(width: int, height: int, tokens: int) -> None:
    rule = PatchRule(max_pixels=1 << 24)
    assert rule.width_of(*fitting_size(height, width, rule)) == tokens


def inputs_for(oracle: Any, family: QwenVLFamily, name: str) -> dict[str, Tensor]:
    """The inputs of transformers for a chat: the ids, with one pad for each embedding, and the patches."""
    chat, rule = CHATS[name], family._config.vision.rule
    media = media_of(chat, rule)
    prepared = family.prepare(Request("a", chat, media))
    ids: list[int] = []
    for fed in prepared.inputs:
        ids += [family._config.image_id] * fed.width if isinstance(fed, MediaInput) else [fed.id]  # type: ignore[union-attr]
    kinds = [int(token == family._config.image_id) for token in ids]
    found = {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor([kinds])}
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    if media:
        patches = [patchify(torch.from_numpy(image.pixels), family._config.vision) for image in media]
        twice = torch.cat(patches).view(-1, 3, 1, 256).expand(-1, -1, 2, -1).flatten(1)
        grids = [[1, image.pixels.shape[0] // 16, image.pixels.shape[1] // 16] for image in media]
        found |= {"pixel_values": twice, "image_grid_thw": torch.tensor(grids)}
    return found


def encoded(family: QwenVLFamily, media: tuple[Media, ...], rows: int) -> Tensor:
    out_NC = torch.full((rows, family.spec.given_dim), torch.nan)
    with torch.inference_mode():
        family.encode(media, out_NC, lambda: None)
    return out_NC


@torch.inference_mode()
@pytest.mark.parametrize("name", CHATS)
def test_positions_embeddings_and_logits_are_those_of_transformers(
    oracle: Any, family: QwenVLFamily, name: str
) -> None:
    given = inputs_for(oracle, family, name)
    ids = given["input_ids"][0]
    chat, rule = CHATS[name], family._config.vision.rule
    prepared = family.prepare(Request("a", chat, media_of(chat, rule)))
    theirs, delta = oracle.model.get_rope_index(
        given["input_ids"], given["mm_token_type_ids"], image_grid_thw=given.get("image_grid_thw")
    )
    assert prepared.positions.at(0, len(ids)).tolist() == theirs[:, 0].T.tolist()
    assert prepared.positions.delta == int(delta)
    expected = oracle(**given).logits[0]
    rows = (ids == family._config.image_id).nonzero()[:, 0]
    embedded = encoded(family, prepared.media, len(rows)) if len(rows) else None
    places = None if embedded is None else Given(rows, embedded, len(ids))
    run = ModelRun(family, positions=prepared.positions)
    hidden = run.feed([0 if token == family._config.image_id else token for token in ids.tolist()], places)
    logits = text.logits(hidden, family._model.weights)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=2e-4)


def chat_request(family: QwenVLFamily, name: str, tokens: int = 60) -> Request:
    media = media_of(CHATS[name], family._config.vision.rule)
    return Request(name, CHATS[name], media, Sampling(temperature=0.0, max_tokens=tokens))


def test_greedy_text_is_that_of_transformers_alone_cached_and_in_a_batch(oracle: Any, family: QwenVLFamily) -> None:
    language, expected = family._model.language, {}
    for name in CHATS:
        given = inputs_for(oracle, family, name)
        with torch.inference_mode():
            written = oracle.generate(**given, max_new_tokens=60, do_sample=False, eos_token_id=None, pad_token_id=0)
        ids = written[0, given["input_ids"].shape[1] :].tolist()
        ends = [at for at, token in enumerate(ids) if token in language.ends]
        expected[name] = language.tokenizer.detokenize(ids[: min(ends, default=60)])
    engine = Engine(family, EngineConfig(max_context=512, token_budget=64, max_batch=4))
    first = drain(engine, [chat_request(family, "turns")])
    batch = drain(engine, [chat_request(family, name) for name in CHATS])
    assert finished(first, "turns").text == expected["turns"]
    assert {name: finished(batch, name).text for name in CHATS} == expected
    # the images of the second run come from the cache, with all before them
    assert finished(batch, "turns").usage.cached_tokens > 20


def finished(outputs: Any, name: str) -> Finished:
    last = ending(outputs, name)
    assert isinstance(last, Finished)
    return last
