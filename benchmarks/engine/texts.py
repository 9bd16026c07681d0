"""Measures texts a second of the engine and of transformers alone, on one CPU, with one model of random weights.

    python -m benchmarks.engine.texts --texts 64 --rounds 5

The model is an XLM-RoBERTa of 12 layers and 384 channels, in float32. Both sides tokenize, and take the same texts of 5
to 100 words. Rounds of all cases alternate, and a ratio is taken within a round, because other work on the machine
comes and goes. Before anything is timed, every vector is compared with that of transformers.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import normalize

from benchmarks.figures import machine, write_json
from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Embed, Finished, Request
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_encoder import BGE_M3, write_encoder

__all__ = ["main"]

_Vectors = npt.NDArray[np.float32]

_SIZES: Final = {
    **BGE_M3,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 514,
}
_WORDS: Final = (
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "looked",
    "dog",
    "what",
    "is",
    "capital",
    "france",
    "falcon",
    "birds",
)
_IN_FLIGHT: Final = 8
_CLOSE: Final = 1 - 1e-5


class _Plain:
    """The model in transformers: texts one by one, or padded together."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
        model: Any = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**_SIZES))
        self._model = model.float().eval()
        stored = load_file(folder / "model.safetensors")
        self._model.load_state_dict(
            {name.removeprefix("roberta."): each for name, each in stored.items()}, strict=False
        )

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> _Vectors:
        """Return the vectors of texts that run together."""
        read = self._tokenizer.encode_batch(list(texts))
        ids, mask = (torch.tensor([getattr(each, name) for each in read]) for name in ("ids", "attention_mask"))
        hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        found: _Vectors = normalize(hidden[:, 0], dim=-1).numpy()
        return found


class _Ours:
    """The model behind the engine, without its cache of texts."""

    def __init__(self, folder: Path) -> None:
        model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
        assert isinstance(model, Encoder)
        self._engine = BatchEngine(model, EngineConfig(prefix_cache=False))

    def embed(self, texts: Sequence[str]) -> _Vectors:
        """Return the vectors of texts that are in flight together, a request each."""
        found: dict[str, bytes] = {}
        for number, text in enumerate(texts):
            self._engine.submit(Request(str(number), Embed((text,))))
        while not self._engine.idle:
            for output in self._engine.step():
                assert isinstance(output, Finished), output
                [found[output.id]] = output.vectors
        return np.stack([np.frombuffer(found[str(number)], "<f4") for number in range(len(texts))])


def main(arguments: list[str] | None = None) -> None:
    """Check, measure, print and write the figures."""
    options = _parser().parse_args(arguments)
    random_ = random.Random(7)
    texts = [" ".join(random_.choices(_WORDS, k=random_.randint(5, 100))) for _ in range(options.texts)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_encoder(Path(scratch) / "model", _SIZES)
        plain, ours = _Plain(folder), _Ours(folder)
    cases: dict[str, tuple[Callable[[Sequence[str]], _Vectors], int]] = {
        "transformers, one at a time": (plain.embed, 1),
        "transformers, 8 padded": (plain.embed, _IN_FLIGHT),
        "engine, one at a time": (ours.embed, 1),
        "engine, 8 in flight": (ours.embed, _IN_FLIGHT),
    }
    wanted = _all(plain.embed, texts, 1)
    for name, (embed, size) in cases.items():
        cosine = float((_all(embed, texts, size) * wanted).sum(1).min())
        assert cosine >= _CLOSE, f"{name}: a vector has cosine {cosine} with that of transformers"
    rounds = [{name: _rate(*case, texts) for name, case in cases.items()} for _ in range(options.rounds)]
    _print(rounds)
    document = {"machine": machine("cpu"), "threads": torch.get_num_threads(), "rounds": rounds}
    write_json(document, options.out, "texts")


def _all(embed: Callable[[Sequence[str]], _Vectors], texts: Sequence[str], size: int) -> _Vectors:
    return np.concatenate([embed(texts[start : start + size]) for start in range(0, len(texts), size)])


def _rate(embed: Callable[[Sequence[str]], _Vectors], size: int, texts: Sequence[str]) -> float:
    """Return texts a second."""
    began = time.perf_counter()
    _all(embed, texts, size)
    return len(texts) / (time.perf_counter() - began)


def _print(rounds: list[dict[str, float]]) -> None:
    base = next(iter(rounds[0]))
    print(f"{'case':28}  texts/s  ratio (least to most)")
    for name in rounds[0]:
        ratios = sorted(each[name] / each[base] for each in rounds)
        rate = statistics.median(each[name] for each in rounds)
        print(f"{name:28}  {rate:7.1f}  {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


if __name__ == "__main__":
    main()
