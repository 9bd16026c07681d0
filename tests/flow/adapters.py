"""The LoRA adapters of the flow tests' worker: one that changes the demo model's answers, and a damaged one."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from stoop.demo.worker_process import find_model

__all__ = ["BROKEN", "TUNED", "write_adapters"]

TUNED = "tuned@100"
BROKEN = "torn@1"


def write_adapters(folder: Path) -> Path:
    """Write the adapters into a new folder, and return it."""
    folder.mkdir()
    text = json.loads((Path(find_model(None)) / "config.json").read_text())["text"]
    drawn = torch.Generator().manual_seed(0)
    name = f"text.blocks.{text['n_layers'] - 1}.mlp.fc2"
    halves = {"A": (4, text["ff_dim"]), "B": (text["dim"], 4)}
    save_file(
        {f"{name}.{half}": torch.randn(*shape, generator=drawn) for half, shape in halves.items()},
        folder / f"{TUNED}.safetensors",
    )
    (folder / f"{BROKEN}.safetensors").write_bytes(b"no tensors")
    return folder
