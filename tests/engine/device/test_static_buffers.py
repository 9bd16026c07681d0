"""Arrays at fixed places, on the CPU; only a CUDA device shows that copies do not overtake each other."""

import torch

from stoop_worker.engine.device.static_buffers import StaticBuffers

KINDS = {"longs": ((2, 3), torch.int64), "bytes": ((5,), torch.uint8), "doubles": ((4,), torch.float64)}


def test_every_step_reuses_the_same_device_arrays() -> None:
    arrays = StaticBuffers(KINDS, torch.device("cpu"))
    places = {name: array.data_ptr() for name, array in arrays.on_device.items()}
    assert not any(array.any() for array in arrays.on_device.values())
    for step in range(5):
        host = arrays.on_host()
        host["longs"][:] = step
        host["bytes"][:] = step + 1
        host["doubles"][:] = [step / 2, 0, -1, step]
        arrays.send()
        assert arrays.on_device["longs"].tolist() == [[step] * 3] * 2
        assert arrays.on_device["bytes"].tolist() == [step + 1] * 5
        assert arrays.on_device["doubles"].tolist() == [step / 2, 0, -1, step]
    assert places == {name: array.data_ptr() for name, array in arrays.on_device.items()}


def test_nothing_is_sent_before_it_is_asked_for() -> None:
    arrays = StaticBuffers(KINDS, torch.device("cpu"))
    arrays.on_host()["longs"][:] = 7
    assert arrays.on_host()["longs"][0, 0] == 7 and not arrays.on_device["longs"].any()
    arrays.send()
    # the arrays of the next send are others
    assert arrays.on_host()["longs"][0, 0] == 0 and arrays.on_device["longs"].all()


def test_only_the_requested_part_of_the_last_array_is_sent() -> None:
    arrays = StaticBuffers(KINDS, torch.device("cpu"))
    host = arrays.on_host()
    host["longs"][:], host["doubles"][:] = 3, 7
    arrays.send(of_last=2)
    assert arrays.on_device["longs"].tolist() == [[3] * 3] * 2
    assert arrays.on_device["doubles"].tolist() == [7, 7, 0, 0]
