"""The GPUs that `--gpus` names."""

import sys

import pytest

from stoop_worker.errors import ConfigError
from stoop_worker.gpu_workers.devices import Device, find_devices

LIST = """GPU 0: NVIDIA H200 (UUID: GPU-1a2b-3c)
GPU 1: NVIDIA H200 (UUID: GPU-4d5e-6f)
  MIG 3g.71gb     Device  0: (UUID: MIG-aa-1)
  MIG 3g.71gb     Device  1: (UUID: MIG-bb-2)
GPU 2: NVIDIA H200 (UUID: GPU-7a8b-9c)
"""


@pytest.fixture(autouse=True)
def _no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of a scheduler must not change these tests."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def lister(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}, end=''); sys.exit({code})"]


def test_all_are_those_that_nvidia_smi_lists_and_a_divided_one_is_its_parts() -> None:
    assert find_devices(["all"], lister=lister(LIST)) == [
        Device("0", "GPU-1a2b-3c"),
        Device("1.0", "MIG-aa-1"),
        Device("1.1", "MIG-bb-2"),
        Device("2", "GPU-7a8b-9c"),
    ]


def test_named_ones_are_taken_as_they_are() -> None:
    assert find_devices(["2", "GPU-1a2b-3c"]) == [Device("2", "2"), Device("GPU-1a2b-3c", "GPU-1a2b-3c")]


def test_all_are_those_that_a_scheduler_left_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-1a2b-3c")
    assert find_devices(["all"], lister=lister(LIST)) == [Device("2", "2"), Device("GPU-1a2b-3c", "GPU-1a2b-3c")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="set and empty"):
        find_devices(["all"], lister=lister(LIST))


@pytest.mark.parametrize(
    ("asked", "listing", "message"),
    [
        (["all"], [sys.executable + "-absent"], "name the GPUs"),
        (["all"], lister("", 9), "ended with 9"),
        (["all"], lister("No devices found\n"), "lists no GPU"),
        (["first"], lister(LIST), "'first' is neither a number nor a UUID"),
        (["all", "0"], lister(LIST), "'all' is neither"),
        (["0", "0"], lister(LIST), "each GPU once"),
    ],
)
def test_an_impossible_choice_of_gpus_is_refused_with_advice(
    asked: list[str], listing: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"--gpus \(STOOP_GPUS\): .*{message}"):
        find_devices(asked, lister=listing)
