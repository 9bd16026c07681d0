"""The state of a training, in files of at most 16 MiB, and the model that results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

__all__ = ["Progress", "load_state", "save_state"]


@dataclass(slots=True)
class Progress:
    """The progress of a training: optimizer steps, scenes seen, seconds spent; `log` has one entry per report."""

    steps: int = 0
    scenes: int = 0
    seconds: float = 0.0
    tokenizer: str = ""
    log: list[dict[str, Any]] = field(default_factory=list)


def save_state(folder: Path, tensors: Mapping[str, Tensor], moments: Mapping[str, Tensor], progress: Progress) -> None:
    """Write the weights (bfloat16 and the remainder), the optimizer's moments in bfloat16, and the progress."""
    folder.mkdir(parents=True, exist_ok=True)
    rounded = {name: tensor.detach().bfloat16() for name, tensor in tensors.items()}
    rest = {name: (tensor.detach() - rounded[name].float()).bfloat16() for name, tensor in tensors.items()}
    halves: list[dict[str, Tensor]] = [{}, {}]
    for name, tensor in moments.items():
        smaller = min(halves, key=lambda half: sum(kept.numel() for kept in half.values()))
        smaller[name] = tensor.detach().bfloat16()
    for name, part in (("weights", rounded), ("rest", rest), ("moments0", halves[0]), ("moments1", halves[1])):
        save_file({key: tensor.cpu().contiguous() for key, tensor in part.items()}, folder / f"{name}.tmp")
        (folder / f"{name}.tmp").replace(folder / f"{name}.safetensors")
    document = {name: getattr(progress, name) for name in progress.__slots__}
    (folder / "progress.tmp").write_text(json.dumps(document), encoding="utf-8")
    (folder / "progress.tmp").replace(folder / "progress.json")


def load_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress]:
    """Read a state written by `save_state`: float32 weights, float32 moments, progress."""
    rounded, rest = load_file(folder / "weights.safetensors"), load_file(folder / "rest.safetensors")
    tensors = {name: tensor.float() + rest[name].float() for name, tensor in rounded.items()}
    moments = load_file(folder / "moments0.safetensors") | load_file(folder / "moments1.safetensors")
    progress = Progress(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))
    return tensors, {name: tensor.to(torch.float32) for name, tensor in moments.items()}, progress
