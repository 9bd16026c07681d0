"""Measures the engine against transformers alone on texts of several lengths, on one CPU, with random weights.

    python -m benchmarks.engine.texts --rounds 9

The model is an XLM-RoBERTa of 12 layers and 384 channels, in float32. There are 8 texts of each length; those of
`mixed` have 7 to 128 tokens. transformers runs one text after another, or all of them padded to one length; the engine
has one request in flight, or 8. Both tokenize. The last two cases are the matrix products of the layers alone, with the
rows of one text in each product, or with those of all 8: their ratio shows how much there is to gain.

Cases alternate, and a ratio is taken within a round, because other work on the machine comes and goes. `processor` is
the time of all threads, which other work changes less than `wall`. Before anything is timed, every vector is compared
with that of transformers.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import models, pre_tokenizers, processors
from torch.nn.functional import normalize

from benchmarks.figures import machine, write_json
from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Embed, Finished, Request
from stoop_worker.kernels.linear import linear
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_encoder import BGE_M3, write_encoder

__all__ = ["main"]

_Vectors = npt.NDArray[np.float32]
_Case = Callable[[Sequence[str]], object]

_SIZES: Final = {
    **BGE_M3,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 514,
}
_WORDS: Final = tuple(f"word{number}" for number in range(_SIZES["vocab_size"] - 4))
_IN_FLIGHT: Final = 8
_LENGTHS: Final = {"8": (8, 8), "32": (32, 32), "128": (128, 128), "512": (512, 512), "mixed": (7, 128)}
"""Tokens of a text, at least and at most; the first and the last are special."""
_CLOSE: Final = 1 - 1e-5
_PRODUCTS: Final = "products, one at a time"


class _Seconds(NamedTuple):
    processor: float
    wall: float


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

    def one_by_one(self, texts: Sequence[str]) -> _Vectors:
        """Return the vectors of texts that run one after another."""
        return np.concatenate([self.together([text]) for text in texts])

    @torch.inference_mode()
    def together(self, texts: Sequence[str]) -> _Vectors:
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

    def one_by_one(self, texts: Sequence[str]) -> _Vectors:
        """Return the vectors of texts of which one is in flight at a time."""
        return np.concatenate([self.together([text]) for text in texts])

    def together(self, texts: Sequence[str]) -> _Vectors:
        """Return the vectors of texts that are in flight together, a request each."""
        found: dict[str, bytes] = {}
        for number, text in enumerate(texts):
            self._engine.submit(Request(str(number), Embed((text,))))
        while not self._engine.idle:
            for output in self._engine.step():
                assert isinstance(output, Finished), output
                [found[output.id]] = output.vectors
        return np.stack([np.frombuffer(found[str(number)], "<f4") for number in range(len(texts))])


class _Products:
    """The matrix products of the layers, without all that is between them."""

    def __init__(self) -> None:
        dim, inner = _SIZES["hidden_size"], _SIZES["intermediate_size"]
        shapes = ((3 * dim, dim), (dim, dim), (inner, dim), (dim, inner)) * _SIZES["num_hidden_layers"]
        self._weights = [(torch.randn(out, into), torch.randn(out)) for out, into in shapes]
        self._rows = {into: torch.randn(_IN_FLIGHT * 512, into) for into in (dim, inner)}

    def one_by_one(self, texts: Sequence[str]) -> None:
        """Multiply the rows of each text."""
        for text in texts:
            self.together([text])

    @torch.inference_mode()
    def together(self, texts: Sequence[str]) -> None:
        """Multiply the rows of all texts at once."""
        count = sum(len(text.split()) + 2 for text in texts)
        for weight, bias in self._weights:
            linear(self._rows[weight.shape[1]][:count], weight, bias)


def main(arguments: list[str] | None = None) -> None:
    """Check, measure, print and write the figures."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_encoder(Path(scratch) / "model", _SIZES)
        _write_tokenizer(folder)
        plain, ours, products = _Plain(folder), _Ours(folder), _Products()
    cases: dict[str, _Case] = {
        "transformers, one at a time": plain.one_by_one,
        "transformers, 8 padded": plain.together,
        "engine, one at a time": ours.one_by_one,
        "engine, 8 in flight": ours.together,
        _PRODUCTS: products.one_by_one,
        "products, 8 together": products.together,
    }
    found: dict[str, list[dict[str, _Seconds]]] = {}
    for length in options.lengths:
        texts = _texts(*_LENGTHS[length])
        _check(texts, plain, ours)
        found[length] = [{name: _time(case, texts) for name, case in cases.items()} for _ in range(options.rounds)]
        _print(length, found[length])
    document = {"machine": machine("cpu"), "threads": torch.get_num_threads(), "seconds": found}
    write_json(document, options.out, "texts")


def _write_tokenizer(folder: Path) -> None:
    """Replace the tokenizer by one of whole words, so that a text has as many tokens as words, and two more."""
    names = ("<s>", "<pad>", "</s>", "<unk>", *_WORDS)
    tokenizer = tokenizers.Tokenizer(models.WordLevel({name: id_ for id_, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def _texts(least: int, most: int) -> list[str]:
    random_ = random.Random(7)
    return [" ".join(random_.choices(_WORDS, k=random_.randint(least, most) - 2)) for _ in range(_IN_FLIGHT)]


def _check(texts: Sequence[str], plain: _Plain, ours: _Ours) -> None:
    wanted = plain.one_by_one(texts)
    for name, embed in (("padded", plain.together), ("alone", ours.one_by_one), ("in flight", ours.together)):
        cosine = float((embed(texts) * wanted).sum(1).min())
        assert cosine >= _CLOSE, f"{name}: a vector has cosine {cosine} with that of transformers"


def _time(case: _Case, texts: Sequence[str]) -> _Seconds:
    processor, wall = time.process_time(), time.perf_counter()
    case(texts)
    return _Seconds(time.process_time() - processor, time.perf_counter() - wall)


def _print(length: str, rounds: list[dict[str, _Seconds]]) -> None:
    for clock, name in enumerate(_Seconds._fields):
        print(f"{length} tokens, {name}: least ms, and times as fast, median (least to most)")
        for case in rounds[0]:
            base = _PRODUCTS if case.startswith("products") else next(iter(rounds[0]))
            ratios = sorted(each[base][clock] / each[case][clock] for each in rounds)
            least = 1e3 * min(each[case][clock] for each in rounds)
            middle = statistics.median(ratios)
            print(f"  {case:28}  {least:8.1f}  {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", choices=list(_LENGTHS), default=list(_LENGTHS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


if __name__ == "__main__":
    main()
