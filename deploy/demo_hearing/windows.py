"""The sound of planned windows: clips in a row, at any speed and level, in a room, under noise.

B windows, T ids, S states of 20 ms, N samples, M mel bands, K clips of a window, L frames, F frequencies.
"""

from dataclasses import dataclass
from math import pi
from random import Random

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deploy.demo_hearing.bank import Bank
from deploy.demo_hearing.plans import RATE, STATE, Planner

__all__ = ["Batch", "Sound", "batch_of"]

_HOP, _FFT = 160, 400
_ROOM = 4800  # samples of an echo


@dataclass(slots=True)
class Batch:
    """Planned windows as arrays. `clips_BK5` as in `Plan`; `labels_BS` is the id of the word heard, or -1."""

    clips_BK5: npt.NDArray[np.float64]
    content_B: npt.NDArray[np.int64]
    silent_B: npt.NDArray[np.bool_]
    ids_BT: npt.NDArray[np.int64]
    losses_BT: npt.NDArray[np.bool_]
    spans_BT2: npt.NDArray[np.int64]
    labels_BS: npt.NDArray[np.int64]
    seed: int


def batch_of(planner: Planner, end: int, seed: int, count: int, longest: float) -> Batch:
    """Draw a batch; rows are filled up with `end`."""
    random = Random(seed)
    plans = [planner.draw(random, longest) for _ in range(count)]
    width = -(-max(len(each.ids) for each in plans) // 16) * 16 + 1  # an even width without the first or the last
    most = max(1, *(len(each.clips) for each in plans))
    states = round(longest / STATE)
    ids = np.full((count, width), end, np.int64)
    losses = np.zeros((count, width), bool)
    spans = np.full((count, width, 2), -1, np.int64)
    labels = np.full((count, states), -1, np.int64)
    clips = np.zeros((count, most, 5), np.float64)
    clips[:, :, 4] = 1e12
    for row, each in enumerate(plans):
        ids[row, : len(each.ids)], losses[row, : len(each.ids)] = each.ids, each.losses
        spans[row, : len(each.ids)] = each.spans
        for first, last, token in each.heard:
            labels[row, first:last] = token
        if each.clips:
            clips[row, : len(each.clips)] = each.clips
    content = np.array([each.content for each in plans])
    silent = np.array([not each.clips for each in plans])
    return Batch(clips, content, silent, ids, losses, spans, labels, seed)


class Sound:
    """Makes the sound of batches, and its log-mel frames, on a device."""

    def __init__(self, bank: Bank, device: torch.device) -> None:
        self._samples_N = torch.from_numpy(bank.samples).to(device)
        self._filters = torch.from_numpy(bank.filters).to(device)
        self._window = torch.hann_window(_FFT, device=device)
        self._device = device

    @torch.no_grad()
    def frames(self, batch: Batch, longest: float) -> Tensor:
        """Return the frames (B, M, L)."""
        source = torch.Generator(self._device).manual_seed(batch.seed)
        size = round(longest * RATE)
        sound_BN = self._hall(self._dry(batch, size), batch, source)
        return self._mel(sound_BN, batch, source)

    def _here(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _dry(self, batch: Batch, size: int) -> Tensor:
        time_N = torch.arange(size, device=self._device, dtype=torch.float32)
        # some windows at a time, for their memory
        return torch.cat([self._placed(part, time_N) for part in self._here(batch.clips_BK5).split(16)])

    def _placed(self, clips_BK5: Tensor, time_N: Tensor) -> Tensor:
        starts_BK = clips_BK5[..., 4].float().contiguous()
        time_BN = time_N.expand(len(clips_BK5), -1).contiguous()
        slot_BN = torch.searchsorted(starts_BK, time_BN, right=True) - 1
        known_BN = slot_BN >= 0
        slot_BN = slot_BN.clamp_min(0)
        within_BN = (time_BN - starts_BK.gather(1, slot_BN)) * clips_BK5[..., 2].float().gather(1, slot_BN)
        known_BN &= within_BN < clips_BK5[..., 1].float().gather(1, slot_BN) - 2
        whole_BN = within_BN.clamp(0).floor()
        rest_BN = within_BN - whole_BN
        at_BN = clips_BK5[..., 0].long().gather(1, slot_BN) + whole_BN.long()
        at_BN = torch.where(known_BN, at_BN, 0).clamp_max(len(self._samples_N) - 2)
        value_BN = self._samples_N[at_BN] * (1 - rest_BN) + self._samples_N[at_BN + 1] * rest_BN
        return value_BN * clips_BK5[..., 3].float().gather(1, slot_BN) * known_BN

    def _hall(self, dry_BN: Tensor, batch: Batch, source: torch.Generator) -> Tensor:
        """Add a room's echo, the tone of a microphone, and coloured noise."""
        count, size = dry_BN.shape
        long = 1 << (size + _ROOM - 1).bit_length()

        def uniform(low: float, high: float) -> Tensor:
            return torch.rand(count, 1, generator=source, device=self._device) * (high - low) + low

        def chance(share: float) -> Tensor:
            return (torch.rand(count, 1, generator=source, device=self._device) < share).float()

        time = torch.arange(_ROOM, device=self._device) / RATE
        echo = torch.randn(count, _ROOM, generator=source, device=self._device)
        echo = echo * torch.exp(-time / uniform(0.01, 0.08)) * uniform(0.02, 0.12) * chance(0.4)
        echo[:, :16] = 0
        echo[:, 0] = 1
        hertz = torch.linspace(0, RATE / 2, long // 2 + 1, device=self._device)
        octaves = (hertz / 1000).clamp_min(0.05).log2()
        tone = uniform(-4, 4) * octaves + uniform(0, 6) * torch.sin(octaves * uniform(0.5, 2) + uniform(0, 2 * pi))
        tone = tone.clamp(-24, 24) - 60 * chance(0.2) * (hertz > uniform(3400, 7000))
        heard = torch.fft.rfft(dry_BN, long) * torch.fft.rfft(echo, long) * 10 ** (tone / 20)
        level = (heard.abs().square().mean(1, keepdim=True) / long).sqrt().clamp_min(1e-4)
        ratio = uniform(0, 45) + 8 - 8 * chance(0.3)
        slope = 10 ** (uniform(-6, 1) * octaves / 20)
        white = torch.randn(count, long, generator=source, device=self._device)
        noise = torch.fft.rfft(white) * slope / slope.square().mean(1, keepdim=True).sqrt()
        noisy = torch.fft.irfft(heard + noise * level * 10 ** (-ratio / 20) * chance(0.85), long)[:, :size]
        quiet = 10 ** uniform(-1.5, 0.3)
        return noisy * quiet * (torch.arange(size, device=self._device) < self._here(batch.content_B)[:, None])

    def features(self, sound_BN: Tensor, louder: Tensor | float = 0.0) -> Tensor:
        """Return log-mel frames, (B, L, M); the loudest of the file is `louder` than that of the window, in decades."""
        found = torch.stft(sound_BN, _FFT, _HOP, window=self._window, center=True, return_complex=True)
        power_BLF = found.abs().square()[..., :-1].transpose(1, 2)
        frames_BLM = (power_BLF @ self._filters).clamp_min(1e-10).log10()
        loudest = frames_BLM.amax((1, 2), keepdim=True) + louder
        return (torch.maximum(frames_BLM, loudest - 8) + 4) / 4

    def _mel(self, sound_BN: Tensor, batch: Batch, source: torch.Generator) -> Tensor:
        count = len(sound_BN)
        # a louder part of the file may lie in another window
        share = torch.rand(count, 1, 1, generator=source, device=self._device)
        frames_BLM = self.features(sound_BN, (share - 0.7).clamp_min(0) * 3)
        length, bands = frames_BLM.shape[1:]
        band = torch.arange(bands, device=self._device)
        low = torch.rand(count, 1, 1, generator=source, device=self._device) * bands * 1.5
        masked = (band >= low) & (band < low + 8)
        frames_BLM = torch.where(masked, frames_BLM.mean((1, 2), keepdim=True), frames_BLM)
        content = (self._here(batch.content_B) // _HOP)[:, None, None]
        frames_BLM = frames_BLM * (torch.arange(length, device=self._device)[None, :, None] < content)
        return frames_BLM.transpose(1, 2)
