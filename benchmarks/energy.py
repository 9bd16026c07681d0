"""Measures the energy that a GPU takes, by the counter of NVIDIA's management library (NVML).

NVML counts millijoules since the driver was loaded, and renews the count ten times a second or more.
"""

import ctypes
import time
from bisect import bisect_left
from threading import Event, Thread
from types import TracebackType
from typing import Final

import torch

__all__ = ["EnergyMeter", "Samples"]

_PERIOD_SECONDS: Final = 0.02
_WAIT_SECONDS: Final = 1.0
_LIBRARY: Final = "libnvidia-ml.so.1"


class Samples:
    """The readings of a counter that is renewed now and then; only a renewal has an exact time."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._joules: list[float] = []

    def add(self, moment: float, joules: float) -> None:
        """Keep a reading if the counter was renewed since the last one."""
        if not self._joules or joules != self._joules[-1]:
            self._joules.append(joules)
            self._moments.append(moment)

    def reach(self, moment: float) -> bool:
        """Return whether the counter was renewed at this moment or later."""
        return bool(self._moments) and self._moments[-1] >= moment

    def between(self, began: float, ended: float) -> float | None:
        """Return the joules between two moments; None if the readings do not cover them."""
        if len(self._moments) < 2 or began < self._moments[0] or not self.reach(ended):
            return None
        return self._at(ended) - self._at(began)

    def _at(self, moment: float) -> float:
        after = max(1, bisect_left(self._moments, moment))
        (begin, end), (low, high) = self._moments[after - 1 : after + 1], self._joules[after - 1 : after + 1]
        return low + (high - low) * (moment - begin) / (end - begin)


class EnergyMeter:
    """Reads a GPU's counter while it is entered; measures nothing on other devices, or without NVML."""

    def __init__(self, device: str) -> None:
        self._counter = _Counter.of(device)
        self._samples = Samples()
        self._over = Event()
        self._thread = Thread(target=self._sample, name="energy", daemon=True)

    def __enter__(self) -> "EnergyMeter":
        if self._counter is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._counter is not None:
            self._thread.join()

    def joules(self, began: float, ended: float) -> float | None:
        """Return the energy between two past moments of `time.perf_counter`; None if it was not measured.

        Waits for the counter's first renewal after the second moment.
        """
        deadline = time.perf_counter() + _WAIT_SECONDS
        while self._thread.is_alive() and not self._samples.reach(ended) and time.perf_counter() < deadline:
            time.sleep(_PERIOD_SECONDS)
        return self._samples.between(began, ended)

    def _sample(self) -> None:
        assert self._counter is not None
        over = False
        while not over:
            joules = self._counter.joules()
            if joules is not None:
                self._samples.add(time.perf_counter(), joules)
            over = self._over.wait(_PERIOD_SECONDS)


class _Counter:
    """The energy counter of one GPU."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, device: str) -> "_Counter | None":
        """Return the counter of torch's device, or None if it has none."""
        if torch.device(device).type != "cuda":
            return None
        # by its id: CUDA_VISIBLE_DEVICES renumbers devices for torch, and not for NVML
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            return None
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
            return None
        counter = cls(library, handle)
        return None if counter.joules() is None else counter

    def joules(self) -> float | None:
        """Return the joules counted so far; None if the GPU does not count them."""
        millijoules = ctypes.c_ulonglong()
        failed = self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1e3
