"""The GPUs that `--gpus` names."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from stoop_worker.errors import ConfigError

__all__ = ["Device", "find_devices"]

_ALL = "all"
_NAME = re.compile(r"\d{1,3}|(GPU|MIG)-[\w/-]+")
_LISTED = re.compile(r"^GPU (?P<number>\d+): .*\(UUID: (?P<uuid>GPU-[\w-]+)\)$")
_PART = re.compile(r"^\s+MIG .*\(UUID: (?P<uuid>MIG-[\w/-]+)\)$")
_LIST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one part of a GPU that is divided by MIG.

    `name` is the label in metrics and logs; `visible` is the value of `CUDA_VISIBLE_DEVICES`.
    """

    name: str
    visible: str


def find_devices(asked: Sequence[str], *, lister: Sequence[str] = ("nvidia-smi", "-L")) -> list[Device]:
    """Return the devices for the values of `--gpus`; raises `ConfigError`.

    `all` means those in `CUDA_VISIBLE_DEVICES`, with which schedulers share a host. If it is not set, NVIDIA's program
    `lister` is asked. A number or a UUID is taken as it is.
    """
    if list(asked) == [_ALL]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return _read_list(_listed(lister))
        asked = [name.strip() for name in visible.split(",") if name.strip()]
        if not asked:
            raise _fault("CUDA_VISIBLE_DEVICES is set and empty: unset it, or name the GPUs")
    for name in asked:
        if not _NAME.fullmatch(name):
            raise _fault(f"{name!r} is neither a number nor a UUID: give all, 0,1 or what `nvidia-smi -L` shows")
    if len(set(asked)) < len(asked):
        raise _fault("name each GPU once")
    return [Device(name, name) for name in asked]


def _listed(lister: Sequence[str]) -> str:
    try:
        done = subprocess.run(lister, capture_output=True, text=True, timeout=_LIST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _fault(f"{lister[0]} does not answer ({type(error).__name__}): name the GPUs, such as 0,1") from error
    if done.returncode != 0:
        raise _fault(f"{lister[0]} ended with {done.returncode}: name the GPUs, such as 0,1")
    return done.stdout


def _read_list(text: str) -> list[Device]:
    """Read the list of `nvidia-smi -L`; a GPU with parts is used by its parts."""
    found: list[Device] = []
    number, parts = "", 0
    for line in text.splitlines():
        if gpu := _LISTED.match(line):
            number, parts = gpu["number"], 0
            found.append(Device(number, gpu["uuid"]))
        elif part := _PART.match(line):
            if parts == 0:
                found.pop()
            found.append(Device(f"{number}.{parts}", part["uuid"]))
            parts += 1
    if not found:
        raise _fault("nvidia-smi lists no GPU")
    return found


def _fault(problem: str) -> ConfigError:
    return ConfigError(f"--gpus (STOOP_GPUS): {problem}")
