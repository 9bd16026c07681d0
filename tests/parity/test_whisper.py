"""Whisper against transformers, on tiny random checkpoints with every id of the real ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stoop_worker.audio import Mel
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.positions import Positions
from stoop_worker.engine.request import Finished, Request, Sampling, Transcribe
from stoop_worker.engine.tensors import Given
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper import decoder
from stoop_worker.models.whisper.family import WhisperFamily
from tests.engine.micro import drain, ending
from tests.models.whisper import naive_dtw
from tests.support.model_run import ModelRun
from tests.support.tiny_whisper import TinyWhisper, write_whisper

transformers = pytest.importorskip("transformers")
generation = pytest.importorskip("transformers.generation.logits_process")

MOST = 40


@dataclass
class Pair:
    tiny: TinyWhisper
    ours: WhisperFamily
    oracle: Any


@pytest.fixture(scope="module", params=["multilingual", "english"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("whisper")
    tiny = write_whisper(folder, multilingual=request.param == "multilingual", seed=3)
    return Pair(tiny, load(folder), read_oracle(folder))


def load(folder: Path) -> WhisperFamily:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, WhisperFamily)
    return model


def read_oracle(folder: Path) -> Any:
    model = transformers.WhisperForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


def mel(number: int) -> Mel:
    return Mel.of(np.random.default_rng(number).standard_normal((80, 3000)).astype(np.float32))


def logits(pair: Pair, ids: list[int], *pieces: int) -> Tensor:
    """Our logits of all ids after a window, computed in pieces of these sizes and the rest."""
    family, memory = pair.ours, pair.ours._model.config.memory
    states_NC = torch.empty(memory, family.spec.dim)
    run = ModelRun(family, pages=128, positions=Positions(delta=-memory))
    with torch.inference_mode():
        family.encode([mel(0)], states_NC, lambda: None)
        # the window, with the first ids behind it or alone
        first, done = [0] * memory + ids[: pieces[0]], pieces[0]
        hidden = [run.feed(first, Given(torch.arange(memory), states_NC, len(first)))]
        for size in (*pieces[1:], len(ids) - sum(pieces)):
            hidden.append(run.feed(ids[done : done + size]))
            done += size
        return decoder.logits(torch.cat(hidden), family._model.weights)


@torch.inference_mode()
def test_logits_are_those_of_transformers_in_any_pieces(pair: Pair) -> None:
    ids = [pair.tiny.ids["<|startoftranscript|>"], *(11 + 7 * number % 250 for number in range(60))]
    frames = torch.from_numpy(mel(0).frames)[None]
    expected = pair.oracle(frames, decoder_input_ids=torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits(pair, ids, 20, 1, 7), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits(pair, ids, 0, 33), expected, rtol=1e-4, atol=1e-4)


@dataclass
class Drawn:
    """The ids that transformers draws, without the end, and the numbers that go with them."""

    ids: list[int]
    average_logprob: float
    no_speech: float


@torch.inference_mode()
def drawn(pair: Pair, sound: int, before: list[int], *, timed: bool) -> Drawn:
    """Draw greedily from the oracle's logits under its own processors; one window, where `generate` takes several."""
    settings, start = pair.oracle.generation_config, len(before)
    processors = [
        generation.SuppressTokensLogitsProcessor(settings.suppress_tokens),
        generation.SuppressTokensAtBeginLogitsProcessor(settings.begin_suppress_tokens, start),
    ]
    if timed:
        processors.append(generation.WhisperTimeStampLogitsProcessor(settings, start))
    states = pair.oracle.model.encoder(torch.from_numpy(mel(sound).frames)[None])
    ids, logprobs, no_speech = torch.tensor([before]), 0.0, -1.0
    for _ in range(MOST):
        scores = pair.oracle(encoder_outputs=states, decoder_input_ids=ids).logits
        if no_speech < 0:
            at = before.index(pair.tiny.ids["<|startoftranscript|>"])
            no_speech = float(scores[0, at].softmax(dim=-1)[pair.tiny.ids["<|nospeech|>"]])
        row = scores[:, -1]
        for processor in processors:
            row = processor(ids, row)
        ids = torch.cat((ids, row.argmax(dim=-1)[None]), dim=1)
        logprobs += float(row.log_softmax(dim=-1).max())
        if ids[0, -1] == pair.tiny.ids["<|endoftext|>"]:
            ids = ids[:, :-1]
            break
    found = ids[0, start:].tolist()
    return Drawn(found, logprobs / (len(found) + 1), no_speech)


CASES = {
    "timed": (Transcribe(language="de"), ["<|de|>", "<|transcribe|>"]),
    "translated": (Transcribe(language="ru", translate=True), ["<|ru|>", "<|translate|>"]),
    "plain": (Transcribe(language="es", timestamps=False), ["<|es|>", "<|transcribe|>", "<|notimestamps|>"]),
    "history": (Transcribe(language="en", history=(40, 50, 60)), ["<|en|>", "<|transcribe|>"]),
}
ENGLISH = {"timed": (Transcribe(), []), "plain": (Transcribe(timestamps=False), ["<|notimestamps|>"])}


def test_greedy_ids_under_the_rules_are_those_of_transformers_in_a_batch(pair: Pair) -> None:
    cases: dict[str, tuple[Transcribe, list[str]]] = CASES if pair.ours._model.vocabulary.languages else ENGLISH
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=MOST)
    wanted = {f"{name} {sound}": (sound, *case) for name, case in cases.items() for sound in (1, 2)}
    engine = Engine(pair.ours, EngineConfig(max_batch=8, token_budget=4000, encode_budget=2, lookahead=True))
    found = drain(engine, [Request(name, task, (mel(n),), sampling) for name, (n, task, _) in wanted.items()])
    ids = pair.tiny.ids
    for name, (sound, task, spellings) in wanted.items():
        history = [ids["<|startofprev|>"], *task.history] if task.history else []
        before = [*history, ids["<|startoftranscript|>"], *(ids[spelling] for spelling in spellings)]
        expected = drawn(pair, sound, before, timed=task.timestamps)
        last = ending(found, name)
        assert isinstance(last, Finished) and last.window is not None
        assert list(last.window.tokens) == expected.ids, name
        assert last.window.average_logprob == pytest.approx(expected.average_logprob, abs=1e-4)
        assert last.window.no_speech == pytest.approx(expected.no_speech, rel=1e-3)


@torch.inference_mode()
def test_the_language_detected_is_that_of_transformers(pair: Pair) -> None:
    if not pair.ours._model.vocabulary.languages:
        pytest.skip("a model of English detects no language")
    named = {token: spelling.strip("<|>") for spelling, token in pair.tiny.ids.items()}
    engine = Engine(pair.ours, EngineConfig(max_batch=4, token_budget=2000))
    sampling = Sampling(temperature=0.0, max_tokens=1)
    found = drain(engine, [Request(str(n), Transcribe(), (mel(n),), sampling) for n in range(4)])
    for number in range(4):
        expected = pair.oracle.detect_language(torch.from_numpy(mel(number).frames)[None])
        last = ending(found, str(number))
        assert isinstance(last, Finished) and last.window is not None
        assert last.window.language == named[int(expected[0])]


@torch.inference_mode()
def test_ids_are_heard_where_the_attention_of_transformers_is(pair: Pair) -> None:
    before = [pair.tiny.ids["<|startoftranscript|>"], pair.tiny.ids["<|notimestamps|>"]]
    text = [11 + 7 * number % 250 for number in range(30)]
    found = pair.ours._align((mel(3),), before, text)
    ids = torch.tensor([[*before, *text, pair.tiny.ids["<|endoftext|>"]]])
    reference = pair.oracle(torch.from_numpy(mel(3).frames)[None], decoder_input_ids=ids, output_attentions=True)
    heads = pair.ours._model.generation.alignment_heads
    shares = np.stack([reference.cross_attentions[layer][0, head].double().numpy() for layer, head in heads])
    scores = (shares - shares.mean(axis=1, keepdims=True)) / shares.std(axis=1, keepdims=True)
    padded = np.pad(scores, ((0, 0), (0, 0), (3, 3)), mode="reflect")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, 7, axis=2), axis=3).mean(axis=0)
    steps = naive_dtw.path((-smooth[len(before) - 1 : -1]).tolist())
    begins = [min(column for row, column in steps if row == at) for at in range(len(text) + 1)]
    np.testing.assert_allclose(found.times, np.array(begins) / 50, atol=1e-9)
    likely = reference.logits[0, len(before) - 1 : -2, : pair.tiny.ids["<|endoftext|>"]].softmax(dim=-1)
    np.testing.assert_allclose(found.probabilities, likely[torch.arange(len(text)), text], rtol=1e-3, atol=1e-6)
