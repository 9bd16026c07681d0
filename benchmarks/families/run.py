"""Measures a family's model of full size with random weights, behind the product's engine.

    python -m benchmarks.families.run llama-1b
    python -m benchmarks.families.run qwen3-4b --workloads decode --concurrency 1,64 --engine fp8_cache=True

Without names it runs all workloads of the model. Nothing is timed unless the answers are those of transformers, which
must be installed. A workload that fails does not stop the others. The last lines are a table; --out writes JSON.
"""

import argparse
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from benchmarks.engine.check import Checked
from benchmarks.engine.full_size import DTYPES
from benchmarks.families import chats, forms, pictures, speech, texts
from benchmarks.families.figure import Figure, table
from benchmarks.families.opened import Opened, open_model
from benchmarks.families.sizes import MODELS, TINY, document_of
from benchmarks.figures import machine, write_json

__all__ = ["arguments_of", "check", "main"]


class _Family(NamedTuple):
    """The check of a family's answers, and its workloads by name."""

    check: Callable[[Opened], Checked]
    workloads: Mapping[str, Callable[[Opened], list[Figure]]]


_CHATS: Final = {**chats.WORKLOADS, **forms.WORKLOADS}

_FAMILIES: Final[Mapping[str, _Family]] = {
    "llama": _Family(chats.check, _CHATS),
    "qwen3": _Family(chats.check, _CHATS),
    "qwen3_vl": _Family(pictures.check, pictures.WORKLOADS),
    "whisper": _Family(speech.check, speech.WORKLOADS),
    "xlm-roberta": _Family(texts.check, texts.WORKLOADS),
    "gemma3_text": _Family(texts.check, texts.WORKLOADS),
}
"""By the `model_type` of a config.json."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Check, measure and print; return the figures. Raises `SystemExit` at the end if a workload failed."""
    arguments = arguments_of(argv)
    family = _family_of(arguments.model)
    unknown = sorted(set(arguments.workloads) - set(family.workloads))
    if unknown:
        raise SystemExit(
            f"{arguments.model} has no workload {', '.join(unknown)}: it has {', '.join(family.workloads)}"
        )
    began = time.perf_counter()
    opened = open_model(arguments)
    print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
    checked = check(opened)
    opened.reference = None  # its memory is free for the workloads
    print(f"checked: {checked}", flush=True)
    figures, failed = _measure(
        opened, {name: family.workloads[name] for name in arguments.workloads or family.workloads}
    )
    document = {
        "kind": "family",
        **{name: getattr(arguments, name) for name in ("model", "device", "dtype", "engine")},
        "machine": machine(arguments.device),
        "checked": asdict(checked),
        "seconds": time.perf_counter() - began,
        "figures": [asdict(figure) for figure in figures],
        "failed": failed,
    }
    write_json(document, arguments.out, f"family-{arguments.model}")
    print(f"{arguments.model}, {arguments.dtype}, {document['machine']['device']}, {document['seconds']:.0f} s in all")
    print("\n".join(table(figures)))
    if failed:
        raise SystemExit("\n".join(f"{name} failed: {fault}" for name, fault in failed.items()))
    return document


def check(opened: Opened) -> Checked:
    """Compare answers with transformers; raises `WrongAnswers`."""
    return _family_of(opened.name).check(opened)


def _family_of(model: str) -> _Family:
    return _FAMILIES[document_of(model)["model_type"]]


def _measure(
    opened: Opened, workloads: Mapping[str, Callable[[Opened], list[Figure]]]
) -> tuple[list[Figure], dict[str, str]]:
    """Run the workloads; return their figures, and the faults of those that failed."""
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name, workload in workloads.items():
        try:
            figures += workload(opened)
        except (Exception, SystemExit) as error:  # the other figures are worth having
            traceback.print_exc()
            failed[name] = repr(error)
    return figures, failed


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Parse a command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name + size for size in ("", TINY) for name in MODELS]
    parser.add_argument("model", choices=names, metavar="model", help=", ".join(names))
    parser.add_argument("--workloads", nargs="*", default=[], help="by default all of the model")
    parser.add_argument("--concurrency", default="1,64", help="requests in flight, one load after another")
    parser.add_argument("--requests", type=int, default=384, help="for each load of a closed loop; fewer below 16")
    parser.add_argument("--seconds", type=float, default=20.0, help="most time for each closed loop")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16" if cuda else "fp32")
    parser.add_argument(
        "--engine", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of the worker's EngineSettings"
    )
    parser.add_argument("--photos", type=Path, default=Path(tempfile.gettempdir()) / "stoop-photos", help="folder")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
