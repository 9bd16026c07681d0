"""The packed copies on a CUDA device."""

import numpy as np
import pytest
import torch

from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.device.upload import Upload

pytestmark = pytest.mark.gpu


def test_batch_after_batch_arrives_while_the_device_is_behind() -> None:
    device = torch.device("cuda")
    busy = torch.randn(4096, 4096, device=device)
    kept = []
    for number in range(200):
        busy = (busy @ busy).clamp(-1, 1)  # so that the copies queue up behind it
        upload = Upload(device)
        small = upload.to_device([number] * 30, torch.int32)
        large = upload.to_device(np.full(40_000, number), torch.int64)
        upload.send()
        kept.append((small.sum(), large.sum()))
    assert [(int(small), int(large)) for small, large in kept] == [(30 * n, 40_000 * n) for n in range(200)]


def test_arrays_at_fixed_places_are_not_overtaken() -> None:
    device = torch.device("cuda")
    arrays = StaticBuffers({"small": ((30,), torch.int32), "large": ((40_000,), torch.int64)}, device)
    busy = torch.randn(4096, 4096, device=device)
    kept = []
    for number in range(200):
        busy = (busy @ busy).clamp(-1, 1)
        host = arrays.on_host()
        host["small"][:] = number
        host["large"][:] = number
        arrays.send()
        kept.append((arrays.on_device["small"].sum(), arrays.on_device["large"].sum()))
    assert [(int(small), int(large)) for small, large in kept] == [(30 * n, 40_000 * n) for n in range(200)]
