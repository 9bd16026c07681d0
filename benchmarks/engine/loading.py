"""Measures the time and the memory of loading a checkpoint, by default one of 512 MB that is made on the fly.

    python -m benchmarks.engine.loading --megabytes 2048
    python -m benchmarks.engine.loading --model /models/moondream3 --device cuda --dtypes bf16
    python -m benchmarks.engine.loading --size full3 --scratch /dev/shm --device cuda --dtypes bf16

With `--size` it makes a random Moondream of that size first, drawn on the device: "full3" takes 18.5 GB in `--scratch`.
Each case runs in a process of its own: `tensors` reads the checkpoint's weights, and `model` opens a whole model as a
worker does, which also merges and quantises weights. The peak is the largest resident size minus the size before;
`of_weights` divides that by the size of the weights as they are loaded, or for `model` as they are stored: 1.0 means
that the host never held them twice.
On a GPU `device peak` is the most memory at any time, and `kept` the memory that the loaded weights take.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from benchmarks.figures import machine, write_json
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.checkpoint import read_checkpoint, weight_files
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["CASES", "main", "measured", "write_checkpoint"]

CASES: Final = ("tensors", "model")

_SHARDS: Final = 2
_TENSOR: Final = (4, 1024, 1024)
_DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32}
_MB: Final = 1 << 20


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.measure:
        print(json.dumps(measured(Path(options.measure), options.device, options.dtype, options.case)))
        return
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = Path(options.model or scratch)
        if options.size:
            _make(folder, options.size, options.device)
        elif not options.model:
            write_checkpoint(folder, options.megabytes)
        kinds = CASES if (folder / "config.json").exists() else CASES[:1]
        cases = [_in_process(folder, options.device, dtype, kind) for dtype in options.dtypes for kind in kinds]
    print("\n".join(_table(cases)))
    write_json({"machine": machine(options.device), "device": options.device, "cases": cases}, options.out, "loading")


def _table(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    heads = "weights MB  seconds  GB/s  peak MB  of weights  anonymous MB  device peak MB  kept MB"
    return [f"dtype  case     {heads}"] + [
        f"{case['dtype']:5}  {case['case']:7}  {case['weights'] / _MB:10.0f}  {case['seconds']:7.2f}"
        f"  {case['weights'] / case['seconds'] / 1e9:4.1f}  {case['peak'] / _MB:7.0f}"
        f"  {case['of_weights']:10.2f}  {case['anonymous'] / _MB:12.0f}"
        f"  {case['device_peak'] / _MB:14.0f}  {case['device_kept'] / _MB:7.0f}"
        for case in cases
    ]


def write_checkpoint(folder: Path, megabytes: int) -> None:
    """Write a sharded bf16 checkpoint of about this size."""
    count = max(_SHARDS, megabytes * _MB // (2 * torch.Size(_TENSOR).numel()))
    names = [f"blocks.{number}.weight" for number in range(count)]
    weight_map = {}
    for shard in range(_SHARDS):
        file = f"model-{shard + 1:05}-of-{_SHARDS:05}.safetensors"
        part = names[shard::_SHARDS]
        save_file({name: torch.randn(_TENSOR).bfloat16() for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _make(folder: Path, size: str, device: str) -> None:
    """Write a random Moondream, in a process that frees its device memory when it ends."""
    command = (sys.executable, "-m", "benchmarks.engine.full_size", str(folder), "--size", size, "--device", device)
    subprocess.run(command, check=True)


def _in_process(folder: Path, device: str, dtype: str, case: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "benchmarks.engine.loading", "--measure", folder, "--device", device)
    given = [*map(str, command), "--dtype", dtype, "--case", case]
    done = subprocess.run(given, check=True, capture_output=True, text=True)
    # a library may have printed lines before
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(folder: Path, device: str, dtype: str, case: str) -> dict[str, Any]:
    """Return the seconds and the bytes of one of `CASES`, in this process."""
    options = LoadOptions(torch.device(device), _DTYPES[dtype])
    torch.zeros(1, device=device)
    before, began = _resident(), time.perf_counter()
    loaded, weights = (_read if case == "tensors" else _opened)(folder, options)
    if device != "cpu":
        torch.cuda.synchronize()
    seconds, after = time.perf_counter() - began, _resident()
    peak = after["VmHWM"] - before["VmRSS"]
    kept = torch.cuda.memory_allocated() if device != "cpu" else 0
    del loaded  # not before the memory was read
    return {
        "dtype": dtype,
        "case": case,
        "weights": weights,
        "seconds": round(seconds, 3),
        "peak": peak,
        "of_weights": round(peak / weights, 3),
        "anonymous": after["RssAnon"] - before["RssAnon"],
        "device_peak": torch.cuda.max_memory_allocated() if device != "cpu" else 0,
        "device_kept": kept,
    }


def _read(folder: Path, options: LoadOptions) -> tuple[object, int]:
    """Return the tensors of a checkpoint, and their bytes."""
    tensors = read_checkpoint(weight_files(folder), lambda name: (name, False), lambda shapes: None, options)
    for tensor in tensors.values():
        tensor.view(-1)[:: 4096 // tensor.element_size()].sum()  # a tensor in its file's pages is read only when used
    return tensors, sum(tensor.nbytes for tensor in tensors.values())


def _opened(folder: Path, options: LoadOptions) -> tuple[object, int]:
    """Return a model that a worker could run, and the bytes of its files' weights."""
    return load_model(folder, options), sum(path.stat().st_size for path in weight_files(folder))


def _resident() -> dict[str, int]:
    """Return the process's resident sizes in bytes, as Linux counts them."""
    status = Path("/proc/self/status").read_text()
    return {name: int(size) << 10 for name, size in re.findall(r"(VmHWM|VmRSS|RssAnon):\s+(\d+) kB", status)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="size of the checkpoint that is made")
    parser.add_argument("--model", help="folder of a checkpoint to read instead")
    parser.add_argument("--size", help="a size of benchmarks.engine.full_size, to be made first")
    parser.add_argument("--scratch", help="folder for the checkpoint that is made; by default the system's")
    parser.add_argument("--dtypes", nargs="+", choices=_DTYPES, default=list(_DTYPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16", help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=CASES, default=CASES[0], help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
