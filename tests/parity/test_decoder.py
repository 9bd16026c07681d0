"""Llama and Qwen3 against transformers, on tiny random checkpoints with every trait of the real ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Chat, Finished, Message, Request, Sampling
from stoop_worker.models.decoder import text
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.micro import drain, ending
from tests.support.model_run import ModelRun
from tests.support.tiny_decoder import LLAMA, QWEN3, write_decoder

transformers = pytest.importorskip("transformers")

PROMPT = [11 + 7 * number % 290 for number in range(150)]
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama-untied-without-head-dim": {
        **{name: value for name, value in LLAMA.items() if name not in ("head_dim", "rope_scaling")},
        "tie_word_embeddings": False,
    },
    "qwen3": QWEN3,
    "qwen3-tied": {**QWEN3, "tie_word_embeddings": True, "num_key_value_heads": 1},
}


@dataclass
class Pair:
    ours: DecoderFamily
    oracle: Any

    def logits(self, ids: list[int], *pieces: int) -> Tensor:
        """Our logits of all positions, computed in pieces of these sizes and the rest."""
        run, done, hidden = ModelRun(self.ours), 0, []
        for size in (*pieces, len(ids) - sum(pieces)):
            hidden.append(run.feed(ids[done : done + size]))
            done += size
        return text.logits(torch.cat(hidden), self.ours._model.weights)


@pytest.fixture(scope="module", params=CONFIGS, ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    given = CONFIGS[request.param]
    config = {"head_dim": 16, **given}
    folder = write_decoder(tmp_path_factory.mktemp("decoder"), config)
    yield Pair(load(folder), read_oracle(folder))


def load(folder: Path) -> DecoderFamily:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, DecoderFamily)
    return model


def read_oracle(folder: Path) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


@torch.inference_mode()
def test_logits_are_those_of_transformers(pair: Pair) -> None:
    expected = pair.oracle(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(pair.logits(PROMPT), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_logits_do_not_depend_on_the_pieces_of_a_prefill(pair: Pair) -> None:
    whole = pair.logits(PROMPT)
    torch.testing.assert_close(pair.logits(PROMPT, 1, 40, 16, 3), whole, rtol=1e-4, atol=1e-4)


def greedy(pair: Pair, text: str, count: int) -> tuple[list[int], list[int]]:
    """Return the ids of a chat's prompt, and the ids that transformers writes after it, not stopping at any."""
    language = pair.ours._model.language
    ids = language.prompt.ids([{"role": "user", "content": text}])
    prompt = torch.tensor([ids])
    mask = torch.ones_like(prompt)  # without it the padding's id is masked wherever it occurs
    written = pair.oracle.generate(
        prompt, attention_mask=mask, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return ids, written[0, len(ids) :].tolist()


def chat(name: str, text: str, count: int) -> Request:
    return Request(name, Chat((Message("user", (text,)),)), (), Sampling(temperature=0.0, max_tokens=count))


def test_greedy_text_of_200_tokens_is_that_of_transformers_alone_cached_and_in_a_batch(pair: Pair) -> None:
    questions = ["what is the answer?", "what is the cat on?", "the mat"]
    language = pair.ours._model.language
    expected = []
    for question in questions:
        _, written = greedy(pair, question, 200)
        ends = [at for at, token in enumerate(written) if token in language.ends]
        expected.append(language.tokenizer.detokenize(written[: min(ends, default=200)]))
    engine = Engine(pair.ours, EngineConfig(max_context=512, token_budget=96, max_batch=4))
    alone = drain(engine, [chat("a", questions[0], 200)])
    batch = drain(engine, [chat(str(number), question, 200) for number, question in enumerate(questions)])
    assert text_of(alone, "a") == expected[0]
    assert [text_of(batch, str(number)) for number in range(3)] == expected
    again = ending(batch, "0")
    assert isinstance(again, Finished) and again.usage.cached_tokens > 0


def text_of(outputs: Any, name: str) -> str:
    last = ending(outputs, name)
    assert isinstance(last, Finished)
    return last.text
