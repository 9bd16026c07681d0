"""Graphs are captured whatever else the process drops."""

import gc
from collections.abc import Iterator
from itertools import count

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.graphs import Graphs


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """A garbage collector that waits until a test lowers its threshold."""
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000_000)
    yield
    gc.set_threshold(*usual)


def test_graphs_of_a_dropped_engine_do_not_spoil_a_capture(quiet_collector: None) -> None:
    ones, calls = torch.ones(4, device="cuda"), count()
    dropped = Graphs()
    dropped.capture("old", lambda: ones + 1)
    dropped.__dict__["itself"] = dropped  # only the collector frees a cycle
    del dropped
    graphs = Graphs()

    def work() -> Tensor:
        if next(calls) == 1:  # the second call is captured
            gc.set_threshold(1)
        kept = [[number] for number in range(1_000)]
        return ones + len(kept)

    graphs.capture("new", work)

    assert graphs.replay("new").tolist() == [1_001.0] * 4
