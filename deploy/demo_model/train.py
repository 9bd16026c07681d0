"""Trains the demo model from scratch on made-up scenes.

    python -m deploy.demo_model.train --out run --seconds 2400          # on a CUDA device
    python -m deploy.demo_model.train --out run --seconds 2400 --resume run
    python -m deploy.demo_model.train --out run --smoke                 # a few steps on a CPU

The learning rate depends on the time spent: the training ends after `--seconds` in all, however often it is resumed.
`python -m deploy.demo_model.export run deploy/demo_model/model` turns the result into a checkpoint.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deploy.demo_model.feed import Batch, Mix, batches, classes
from deploy.demo_model.learner import Learner
from deploy.demo_model.muon import Muon
from deploy.demo_model.recipe import demo_config, demo_tokenizer, first_tensors, smoke_config
from deploy.demo_model.sitting import sit
from deploy.demo_model.state import Progress, load_state, save_state
from deploy.demo_model.teach import Teacher
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["Trainer", "main"]

_SMOKE_MIX = Mix(scenes=3, single_groups=1, crops=13, many_groups=1)
_WARM_UP = 300  # steps
_REPORT = 100  # steps


@dataclass
class Trainer:
    """A training: weights, optimizers, progress."""

    learner: Learner
    progress: Progress
    seconds: float
    rate: float
    device: torch.device

    def __post_init__(self) -> None:
        muon, rest = _split(self.learner.tensors)
        self.muon = Muon(muon)
        self.everything = self.learner.tensors | {f"dense.{name}": t for name, t in self.learner.dense.items()}
        adam = rest | {name: t for name, t in self.everything.items() if name.startswith("dense.")}
        self.adam_names = sorted(adam)
        self.adam = torch.optim.AdamW(
            [adam[name] for name in self.adam_names],
            betas=(0.9, 0.98),
            weight_decay=0.0,
            fused=self.device.type == "cuda",
        )

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Learn from one batch; returns the losses, still on the device."""
        share = min(1.0, self.progress.seconds / self.seconds)
        rate = self.rate * min(1.0, (self.progress.steps + 1) / _WARM_UP) * (0.5 + 0.5 * cos(pi * share))
        self.learner.blur = 5.0 * 0.12**share
        losses = self.learner.losses(
            classes(batch, self.device), batch.pages.to(self.device), batch.blank.to(self.device)
        )
        dense = (losses["crop"] + losses["image"]) * (1.0 - 0.8 * share)
        total = 2 * losses["say"] + 0.2 * losses["blank"] + losses["at"] + 0.6 * losses["size"] + dense
        torch.autograd.backward(total)
        self.muon.step(rate)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for tensor in self.everything.values():
            tensor.grad = None
        self.progress.steps += 1
        self.progress.scenes += len(batch.pages.ids_BS)
        return losses

    def save(self, folder: Path) -> None:
        """Write everything needed to resume."""
        moments = {f"muon.{rows}.{columns}": moment for (rows, columns), moment in self.muon.momenta.items()}
        for name, parameter in zip(self.adam_names, self.adam.param_groups[0]["params"], strict=True):
            state = self.adam.state[parameter]
            moments |= {f"adam.{name}.{key}": state[key] for key in ("exp_avg", "exp_avg_sq") if key in state}
        save_state(folder, self.everything, moments, self.progress)

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Restore the optimizers' moments from an earlier training."""
        for rows, columns in self.muon.momenta:
            self.muon.momenta[rows, columns].copy_(moments[f"muon.{rows}.{columns}"])
        for name, parameter in zip(self.adam_names, self.adam.param_groups[0]["params"], strict=True):
            first = moments[f"adam.{name}.exp_avg"].to(self.device)
            second = moments[f"adam.{name}.exp_avg_sq"].to(self.device)
            steps = torch.tensor(float(self.progress.steps), device=self.device)
            self.adam.state[parameter] = {"step": steps, "exp_avg": first, "exp_avg_sq": second}


def _split(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return Muon's tensors and AdamW's; the Fourier features stay as they are."""
    muon, rest = {}, {}
    for name, tensor in tensors.items():
        inner = ".blocks." in name or "proj_mlp" in name or name.endswith("decoder.fc1.weight")
        if tensor.dim() == 2 and inner:
            muon[name] = tensor
        elif not name.endswith("_features"):
            rest[name] = tensor
    return muon, rest


def build(arguments: argparse.Namespace, device: torch.device) -> tuple[Trainer, Tokenizer]:
    """Return a new training, or the saved one if `--resume` names its folder."""
    moments: dict[str, Tensor] = {}
    progress = Progress(tokenizer=demo_tokenizer().document())
    stored: dict[str, Tensor] = {}
    if arguments.resume:
        stored, moments, progress = load_state(arguments.resume)
    tokenizer = Tokenizer(progress.tokenizer)
    config = smoke_config(tokenizer) if arguments.smoke else demo_config(tokenizer)
    tensors = {name: stored.get(name, tensor) for name, tensor in first_tensors(config).items()}
    dense = {name: stored.get(f"dense.{name}", tensor) for name, tensor in Learner.first_dense(config).items()}
    placed, dense = (
        {name: tensor.to(device).requires_grad_(not name.endswith("_features")) for name, tensor in part.items()}
        for part in (tensors, dense)
    )
    mix = _SMOKE_MIX if arguments.smoke else Mix()
    learner = Learner(config, placed, dense, torch.bfloat16, most_crops=mix.most_crops)
    if arguments.compile:
        learner.compile()
    trainer = Trainer(learner, progress, arguments.seconds, arguments.rate, device)
    if moments:
        trainer.restore(moments)
    return trainer, tokenizer


def run(trainer: Trainer, feed: Iterator[Batch], arguments: argparse.Namespace) -> None:
    """Train until the seconds are spent, `--until` is reached, or the steps of a smoke run are done."""
    progress, last = trainer.progress, time.monotonic()
    end, saved = min(arguments.seconds, arguments.until or arguments.seconds), last
    sums: dict[str, Tensor] = {}
    reported = progress.steps
    while progress.seconds < end and progress.steps < (arguments.steps or progress.steps + 1):
        losses = trainer.step(next(feed))
        for name, loss in losses.items():
            sums[name] = sums.get(name, 0) + loss.detach()
        now = time.monotonic()
        progress.seconds, last = progress.seconds + now - last, now
        if progress.steps % _REPORT == 0 or arguments.smoke:
            count = progress.steps - reported
            _note(progress, {"losses": {name: round(float(total) / count, 4) for name, total in sums.items()}})
            sums, reported = {}, progress.steps
        if now - saved > arguments.save_every:
            trainer.save(arguments.out)
            saved = now


def _note(progress: Progress, what: dict[str, Any]) -> None:
    entry = {"step": progress.steps, "scenes": progress.scenes, "seconds": round(progress.seconds, 1), **what}
    progress.log.append(entry)
    print(json.dumps(entry), flush=True)


def main() -> None:
    """Train, save, and sit the exam."""
    arguments = _arguments()
    device = torch.device("cuda" if torch.cuda.is_available() and not arguments.smoke else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN plans again for every batch size
    torch.manual_seed(time.time_ns() % 2**31)
    trainer, tokenizer = build(arguments, device)
    teacher = Teacher(trainer.learner.config, tokenizer.tokenize)
    mix = _SMOKE_MIX if arguments.smoke else Mix()
    workers = 0 if arguments.smoke else max(1, (os.cpu_count() or 2) - 2)
    feed = batches(teacher, mix, seed=trainer.progress.steps, workers=workers)
    run(trainer, feed, arguments)
    trainer.save(arguments.out)
    if arguments.exam:
        _note(trainer.progress, {"exam": sit(trainer.learner, tokenizer, count=arguments.exam, workers=workers)})
        trainer.save(arguments.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy.demo_model.train", description="Train the demo model on made-up scenes."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the state")
    parser.add_argument("--resume", type=Path, help="folder of an earlier state")
    parser.add_argument("--seconds", type=float, default=2400, help="length of the whole training")
    parser.add_argument("--until", type=float, help="stop after this many seconds of it")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--save-every", type=float, default=45, help="seconds between saves")
    parser.add_argument("--exam", type=int, default=200, help="held-out scenes at the end, of each kind")
    parser.add_argument("--compile", action="store_true", help="compile encoder and decoder")
    parser.add_argument("--smoke", action="store_true", help="a few steps of a tiny model on the CPU")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps, arguments.exam = arguments.steps or 2, min(arguments.exam, 2)
    return arguments


if __name__ == "__main__":
    main()
