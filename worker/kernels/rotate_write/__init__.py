"""Rotate the queries and keys of a decoder layer, and store its keys and values in the KV pool."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.rotate_write import reference
from worker.kernels.rotate_write.reference import rotation_table

__all__ = ["rotate_and_write", "rotate_write_gelu", "rotation_table"]


def rotate_and_write(
    qkv_TC: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, heads: int
) -> Tensor:
    """Return the rotated q_THD; see `reference.rotate_and_write`."""
    if uses_kernel(qkv_TC):
        from worker.kernels.rotate_write import kernel

        return kernel.rotate_and_write(qkv_TC, positions_T, table_SF2, pool, slots_T, heads=heads)
    return reference.rotate_and_write(qkv_TC, positions_T, table_SF2, pool, slots_T, heads=heads)


def rotate_write_gelu(
    qkvf_TN: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, out_TM: Tensor
) -> Tensor:
    """Return the rotated q_THD and fill the last columns of `out_TM`; see `reference.rotate_write_gelu`."""
    if uses_kernel(qkvf_TN):
        from worker.kernels.rotate_write import kernel

        return kernel.rotate_write_gelu(qkvf_TN, positions_T, table_SF2, pool, slots_T, out_TM=out_TM)
    return reference.rotate_write_gelu(qkvf_TN, positions_T, table_SF2, pool, slots_T, out_TM=out_TM)
