"""Trains the demo's Whisper from scratch on made-up speech.

    python -m deploy.demo_hearing.train bank run --seconds 240           # on a CUDA device
    python -m deploy.demo_hearing.train bank run --smoke                 # a few steps on a CPU

The learning rate and the length of the windows depend on the time spent. The training needs torch and numpy alone.
`python -m deploy.demo_hearing.export bank run deploy/demo_hearing/model` turns the result into a checkpoint.
"""

import argparse
import json
import time
from collections import deque
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from math import cos, pi
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from deploy.demo_hearing.bank import Bank
from deploy.demo_hearing.network import Sizes, decode, encode, first_tensors, guide, logits
from deploy.demo_hearing.plans import Planner
from deploy.demo_hearing.windows import Batch, Sound, batch_of
from deploy.demo_model.muon import Muon

__all__ = ["main"]

_WARM_UP = 200  # steps
_STAMPS = 1501
_WHOLE = 30.0  # seconds


@dataclass(slots=True)
class Stage:
    """Windows of `longest` seconds, `count` at a time, until a share of the training is over."""

    until: float
    longest: float
    count: int


class Trainer:
    """The weights, their optimizers, and the losses."""

    def __init__(self, bank: Bank, sizes: Sizes, device: torch.device, rate: float, *, muon: bool) -> None:
        self.sizes, self.device, self.rate = sizes, device, rate
        self.controls = bank.controls
        self.first_stamp = bank.controls["0.00"]
        self.steps = 0
        tensors = first_tensors(sizes, self.first_stamp + _STAMPS, self.first_stamp)
        # words are also named from the states alone, which teaches the encoder much sooner than the decoder does
        source = torch.Generator().manual_seed(1)
        tensors["hint.weight"] = torch.randn(self.first_stamp, sizes.dim, generator=source) * 0.02
        self.tensors = {name: tensor.to(device).requires_grad_() for name, tensor in tensors.items()}
        self.tensors["model.encoder.embed_positions.weight"].requires_grad_(False)
        learned = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        matrices = {name: each for name, each in learned.items() if muon and each.dim() == 2 and ".layers." in name}
        self.muon = Muon(matrices)
        rest = [tensor for name, tensor in learned.items() if name not in matrices]
        self.adam = torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=device.type == "cuda")
        self.sound = Sound(bank, device)

    def step(self, batch: Batch, longest: float, share: float) -> dict[str, Tensor]:
        """Learn from a batch; return the losses, still on the device."""
        frames = self.sound.frames(batch, longest)
        ids = self._here(batch.ids_BT)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            states = encode(frames, self.tensors, self.sizes)
            hidden, asked = decode(ids[:, :-1], states, self.tensors, self.sizes)
            spans = self._here(batch.spans_BT2)[:, 1:]
            found = {"guide": guide(asked, states, spans, self.tensors, self.sizes)}
            found["hint"] = self._hint(states, batch)
        found["say"] = self._say(hidden.float(), ids, batch)
        rest = 1.0 - 0.9 * min(1.0, share / 0.8)
        torch.autograd.backward(found["say"] + rest * (0.3 * found["guide"] + 0.5 * found["hint"]))
        self._update(share)
        return found

    def _here(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _hint(self, states: Tensor, batch: Batch) -> Tensor:
        labels = self._here(batch.labels_BS).flatten()
        labels = torch.where(labels < 0, self.controls["endoftext"], labels)
        return cross_entropy(linear(states.flatten(0, 1), self.tensors["hint.weight"]).float(), labels)

    def _say(self, hidden: Tensor, ids: Tensor, batch: Batch) -> Tensor:
        kept = self._here(batch.losses_BT)[:, 1:]
        targets = ids[:, 1:]
        after_start = ids[:, :-1] == self.controls["startoftranscript"]
        silent = self._here(batch.silent_B)[:, None] & after_start
        targets = torch.where(silent, self.controls["nospeech"], targets)
        odds = torch.log_softmax(logits(hidden[kept], self.tensors), dim=-1)
        targets = targets[kept]
        exact = -odds.gather(1, targets[:, None])[:, 0]
        is_stamp = targets >= self.first_stamp
        low = (targets - 1).clamp_min(self.first_stamp)
        high = (targets + 1).clamp_max(self.first_stamp + _STAMPS - 1)
        near = -0.5 * (odds.gather(1, low[:, None]) + odds.gather(1, high[:, None]))[:, 0]
        return torch.where(is_stamp, 0.5 * exact + 0.5 * near, exact).mean()

    def _update(self, share: float) -> None:
        rate = self.rate * min(1.0, (self.steps + 1) / _WARM_UP) * (0.5 + 0.5 * cos(pi * min(1.0, share)))
        self.muon.step(rate)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for tensor in self.tensors.values():
            tensor.grad = None
        self.steps += 1

    def save(self, folder: Path, log: list[dict[str, float]]) -> None:
        """Write the weights, and the losses so far."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = {name: tensor.detach().half().cpu() for name, tensor in self.tensors.items() if name != "hint.weight"}
        torch.save({"tensors": kept, "sizes": self.sizes.document()}, folder / "weights.new")
        (folder / "weights.new").replace(folder / "weights.pt")
        (folder / "log.json").write_text(json.dumps(log))


class Feed:
    """Draws batches ahead of time, in other processes or in a thread."""

    def __init__(self, pool: Executor, ahead: int) -> None:
        self._pool, self._ahead = pool, ahead
        self._waiting: deque[tuple[Stage, Future[Batch]]] = deque()
        self._seed = 0

    def next(self, stage: Stage) -> tuple[Stage, Batch]:
        """Return a batch of this stage, or one that was drawn just before it began."""
        while len(self._waiting) < self._ahead:
            self._waiting.append((stage, self._pool.submit(_draw, self._seed, stage.count, stage.longest)))
            self._seed += 1
        drawn, future = self._waiting.popleft()
        return drawn, future.result()


_PLANNERS: list[tuple[Planner, int]] = []  # of this process, with the id of the end


def _open(folder: Path) -> None:
    torch.set_num_threads(1)
    _plan_from(Bank.read_clips(folder))


def _plan_from(bank: Bank) -> None:
    _PLANNERS.append((Planner(bank), bank.controls["endoftext"]))


def _draw(seed: int, count: int, longest: float) -> Batch:
    planner, end = _PLANNERS[0]
    return batch_of(planner, end, seed, count, longest)


def run(trainer: Trainer, feed: Feed, stages: list[Stage], arguments: argparse.Namespace) -> None:
    """Train until the time is over."""
    began = saved = time.monotonic()
    log: list[dict[str, float]] = []
    sums: dict[str, Tensor] = {}
    share = 0.0
    while share < 1 and trainer.steps < (arguments.steps or trainer.steps + 1):
        stage = next(each for each in stages if share < each.until)
        stage, batch = feed.next(stage)
        for name, loss in trainer.step(batch, stage.longest, share).items():
            sums[name] = sums.get(name, 0) + loss.detach()
        if trainer.steps % arguments.report == 0:
            means = {name: round(float(total) / arguments.report, 4) for name, total in sums.items()}
            now = time.monotonic()
            log.append({"step": trainer.steps, "seconds": round(now - began, 1), "window": stage.longest, **means})
            print(json.dumps(log[-1]), flush=True)
            sums = {}
            if now - saved > arguments.save_every:
                trainer.save(arguments.out, log)
                saved = now
        share = (time.monotonic() - began) / arguments.seconds
    trainer.save(arguments.out, log)


def _stages(device: torch.device, *, smoke: bool) -> list[Stage]:
    if smoke:
        return [Stage(9.0, 4.0, 2)]
    if device.type == "cuda":
        return [Stage(0.25, 10.0, 128), Stage(9.0, _WHOLE, 64)]
    return [Stage(0.6, 6.0, 16), Stage(0.8, 15.0, 8), Stage(9.0, _WHOLE, 4)]


def main() -> None:
    """Train and save."""
    arguments = _arguments()
    use_gpu = torch.cuda.is_available() and not arguments.smoke
    pool: Executor = ThreadPoolExecutor(1)
    if use_gpu:
        pool = ProcessPoolExecutor(8, mp_context=get_context("spawn"), initializer=_open, initargs=(arguments.bank,))
    else:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN plans again for every width of a batch
    torch.set_float32_matmul_precision("high")
    bank = Bank.read(arguments.bank)
    _plan_from(bank)
    device = torch.device("cuda" if use_gpu else "cpu")
    sizes = Sizes(dim=arguments.dim, encoder_layers=arguments.layers)
    trainer = Trainer(bank, sizes, device, arguments.rate, muon=arguments.muon or use_gpu)
    feed = Feed(pool, 24 if use_gpu else 2)
    try:
        run(trainer, feed, _stages(device, smoke=arguments.smoke), arguments)
    finally:
        pool.shutdown(cancel_futures=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deploy.demo_hearing.train", description="Train the demo's Whisper.")
    parser.add_argument("bank", type=Path, help="folder of clips")
    parser.add_argument("out", type=Path, help="folder for the weights")
    parser.add_argument("--seconds", type=float, default=240, help="length of the training")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--muon", action="store_true", help="orthogonal steps on a CPU too, where they are slow")
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--layers", type=int, default=3, help="layers of the encoder")
    parser.add_argument("--report", type=int, default=100, help="steps between reports")
    parser.add_argument("--save-every", type=float, default=45, help="seconds between saves")
    parser.add_argument("--smoke", action="store_true", help="a few steps of short windows on the CPU")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps, arguments.report = arguments.steps or 2, 1
    return arguments


if __name__ == "__main__":
    main()
