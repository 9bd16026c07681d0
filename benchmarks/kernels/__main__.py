"""Times every kernel against the library call it replaces: `python3 -m benchmarks.kernels [--sweep] [name …]`.

`--sweep` also times the other splits of the work, for modules with `alternatives`. If OUT is set, the rows are written
to `kernel_rows.json` in that folder.
"""

import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import torch

import benchmarks.kernels as here
from benchmarks.kernels.row import Row, print_table

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the named modules, or all; return the number of modules that failed."""
    wanted = {argument for argument in arguments if not argument.startswith("-")}
    functions = ("rows", "alternatives") if "--sweep" in arguments else ("rows",)
    found: list[Row] = []
    failed = 0
    for name in sorted(module.name for module in pkgutil.iter_modules(here.__path__)):
        if name in ("__main__", "ceiling", "row") or (wanted and name not in wanted):
            continue
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


def _write(found: list[Row]) -> None:
    if folder := os.environ.get("OUT"):
        text = json.dumps([asdict(row) for row in found], indent=1)
        (Path(folder) / "kernel_rows.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
