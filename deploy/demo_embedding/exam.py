"""Measures how often the nearest neighbour of a sentence has its meaning, among meanings absent from the training.

python -m deploy.demo_embedding.exam deploy/demo_embedding/model
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from deploy.demo_embedding.meanings import Meaning
from deploy.demo_embedding.texts import all_meanings
from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Embed, Finished, Request
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["Figures", "figures", "vectors"]

_Vectors = npt.NDArray[np.float32]
Figures = dict[str, float]


def vectors(model: Path, texts: Sequence[str]) -> _Vectors:
    """Return the vector of each text, (N, C), from the engine in float32 on the CPU."""
    loaded = load_model(model, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(loaded, Encoder)
    engine = BatchEngine(loaded, EngineConfig())
    engine.submit(Request("texts", Embed(tuple(texts))))
    found: tuple[bytes, ...] = ()
    while not engine.idle:
        for output in engine.step():
            assert isinstance(output, Finished), output
            found = output.vectors
    return np.stack([np.frombuffer(each, "<f4") for each in found])


def figures(model: Path) -> Figures:
    """Return shares of held-out meanings.

    "same" is the share of other sentences, in the same language, whose nearest first sentence of all held-out meanings
    is their own; "German" the share of German sentences whose nearest English one is their translation; "subject" the
    share whose nearest one of another meaning has their subject, of those for which there is one.
    """
    meanings = [meaning for meaning in all_meanings() if meaning.is_held_out]
    first = vectors(model, [meaning.english[0] for meaning in meanings])
    other = vectors(model, [meaning.english[1] for meaning in meanings])
    german = vectors(model, [meaning.german[0] for meaning in meanings])
    among = first @ first.T - 2 * np.eye(len(first), dtype=np.float32)
    return {
        "same": _own(other @ first.T),
        "German": _own(german @ first.T),
        "subject": _alike(meanings, among.argmax(1).tolist()),
    }


def _own(cosines: _Vectors) -> float:
    return float((cosines.argmax(1) == np.arange(len(cosines))).mean())


def _alike(meanings: Sequence[Meaning], nearest: Sequence[int]) -> float:
    subjects = [meaning.features[0] for meaning in meanings]
    pairs = zip(subjects, nearest, strict=True)
    alike = [one == subjects[other] for one, other in pairs if subjects.count(one) > 1]
    return sum(alike) / len(alike)


def main() -> None:
    """Sit the exam."""
    parser = argparse.ArgumentParser(prog="deploy.demo_embedding.exam", description="Measure the demo's embedder.")
    parser.add_argument("model", type=Path)
    print(json.dumps(figures(parser.parse_args().model)))


if __name__ == "__main__":
    main()
