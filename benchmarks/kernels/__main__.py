"""Times every kernel against the library call it replaces: `python -m benchmarks.kernels [--sweep] [NAME …]`."""

import argparse
import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

import torch

import benchmarks.kernels as here
from benchmarks.kernels.row import Row, print_table

__all__ = ["NAMES", "main"]

_NOT_TIMED: Final = ("__main__", "ceiling", "row")

NAMES: Final = tuple(sorted({module.name for module in pkgutil.iter_modules(here.__path__)} - set(_NOT_TIMED)))
"""The modules that time kernels."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named modules, or all; return the number of modules that failed."""
    arguments = _parser().parse_args(argv)
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        raise SystemExit(f"there is no module {', '.join(unknown)}: see --help")
    if not torch.cuda.is_available():
        raise SystemExit("kernels run on a CUDA GPU, and PyTorch finds none on this machine")
    functions = ("rows", "alternatives") if arguments.sweep else ("rows",)
    found: list[Row] = []
    failed = 0
    for name in arguments.names or NAMES:
        try:
            module = import_module(f"{here.__name__}.{name}")
            for function in functions:
                measure: Callable[[], list[Row]] | None = getattr(module, function, None)
                found += measure() if measure else []
        except Exception:
            traceback.print_exc()
            failed += 1
        torch.cuda.empty_cache()
    print_table(found)
    _write(found)
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels",
        description="Time kernels against the library calls that they replace. Needs a CUDA GPU. If OUT is set, the "
        "rows are written to kernel_rows.json in that folder.",
        epilog=f"Modules: {', '.join(NAMES)}.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a module to run; all of them if none is named")
    parser.add_argument(
        "--sweep", action="store_true", help="also time the other splits of the work, where a module has alternatives"
    )
    return parser


def _write(found: list[Row]) -> None:
    if folder := os.environ.get("OUT"):
        text = json.dumps([asdict(row) for row in found], indent=1)
        (Path(folder) / "kernel_rows.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
