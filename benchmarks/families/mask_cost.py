"""Counts the instructions of the masks of JSON texts, for the vocabulary of a tokenizer.json.

    python -m benchmarks.families.mask_cost tokenizer.json --size 151936

Each text is written token by token, as its tokenizer cuts it, and each token has one mask. The figure is the mean of
its masks, with the work of following the token, after one round that fills the tables of the grammar. It needs `perf`.
To compare two trees, run it in each of them: other work on the machine hardly changes instructions.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.instructions import counting
from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.request import Grammar
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["CASES", "instructions_of", "main"]

_PERSON: Final = {
    "name": "Grace Hopper",
    "title": "Rear admiral of the United States Navy",
    "tags": ["pioneer", "compiler", "COBOL"],
    "age": 85,
    "summary": 'She "popularised" machine-independent programming; das heißt, naïve Übersetzer.',
}
_BOUNDS: Final = (3, 5, 12, 30, 120, 500)


def _person(**string: int) -> dict[str, Any]:
    text = {"type": "string", **string}
    kinds = {"tags": {"type": "array", "items": text}, "age": {"type": "integer"}, "summary": {"type": "string"}}
    return {"type": "object", "properties": {"name": text, "title": text, **kinds}, "required": list(_PERSON)}


CASES: Final[Mapping[str, tuple[dict[str, Any], Any]]] = {
    "any object": ({"type": "object"}, _PERSON),
    "strings without a bound": (_person(), _PERSON),
    "strings of at most 60 characters": (_person(maxLength=60), _PERSON),
    **{
        f"strings cut to {most}": ({"items": {"type": "string", "maxLength": most}}, [json.dumps(_PERSON)[:most]])
        for most in _BOUNDS
    },
}
"""Schemas, each with a value that follows it."""


def instructions_of(grammars: Grammars, schema: Mapping[str, Any], tokens: Sequence[int], size: int) -> float:
    """Return the mean instructions of a token; raises ValueError if the schema does not allow the tokens."""
    row = np.zeros((1, -(-size // 32)), dtype=np.int32)
    counted = 0
    for _ in range(2):  # the first round fills the tables
        constraint = grammars.start(Grammar(schema=json.dumps(schema)))
        assert constraint is not None
        with counting(os.getpid()) as count:
            for token in tokens:
                constraint.matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
                constraint.take(token)
        if constraint.matcher.is_error():
            raise ValueError(f"the schema does not allow the text: {schema}")
        counted = count.counted
    return counted / len(tokens)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Measure and print; return thousands of instructions by case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path, help="the tokenizer.json of a model")
    parser.add_argument("--size", type=int, required=True, help="the ids of the model")
    parser.add_argument("--end", default="<|im_end|>", help="the token that ends an answer")
    arguments = parser.parse_args(argv)
    tokenizer = Tokenizer.read(arguments.tokenizer)
    grammars = Grammars(tokenizer.document, size=arguments.size, ends=[tokenizer.specials[arguments.end]])
    found: dict[str, float] = {}
    for name, (schema, value) in CASES.items():
        tokens = tokenizer.tokenize(json.dumps(value, ensure_ascii=False))
        found[name] = instructions_of(grammars, schema, tokens, arguments.size) / 1e3
        print(f"{name:34s}{found[name]:8.0f} thousand instructions a token", flush=True)
    return found


if __name__ == "__main__":
    main()
