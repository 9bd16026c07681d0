"""Packing, on the CPU; only a CUDA device shows the copies themselves."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.engine.device.upload import Upload

CPU = torch.device("cpu")
DTYPES = st.sampled_from([torch.int32, torch.int64, torch.float32, torch.float64])
SHAPES = st.sampled_from([(0,), (1,), (3,), (5, 2), (0, 2), (7, 0), (100,), (70_000,)])


@given(st.lists(st.tuples(SHAPES, DTYPES), max_size=8))
def test_packed_values_arrive_complete_and_separate(wanted: list[tuple[tuple[int, ...], torch.dtype]]) -> None:
    upload = Upload(CPU, packed=True)
    values = [np.arange(np.prod(shape)).reshape(shape) + 1000 * index for index, (shape, _) in enumerate(wanted)]
    tensors = [upload.to_device(one, dtype) for one, (_, dtype) in zip(values, wanted, strict=True)]
    upload.send()
    for tensor, one, (shape, dtype) in zip(tensors, values, wanted, strict=True):
        assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)
        assert tensor.numpy().tolist() == one.tolist()


def test_a_batch_of_small_values_is_one_copy() -> None:
    upload = Upload(CPU, packed=True)
    tensors = [upload.to_device([index] * index, torch.int32) for index in range(20)]
    upload.send()
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_on_the_cpu_values_are_there_without_a_copy() -> None:
    array = np.arange(5)
    upload = Upload(CPU)
    assert upload.to_device(array, torch.int64).data_ptr() == torch.from_numpy(array).data_ptr()
    assert upload.to_device([1.5], torch.float32).tolist() == [1.5]
