"""Names for parts of a step in the traces of torch's profiler, and in those of Nsight Systems as NVTX ranges.

A captured graph has none inside: a replay launches all of its kernels at once.
"""

from contextlib import AbstractContextManager, nullcontext

from torch._C._autograd import _profiler_enabled
from torch.profiler import record_function

__all__ = ["named_part"]

_UNNAMED = nullcontext()


def named_part(name: str) -> AbstractContextManager[object]:
    """Return a context whose work has this name in a trace; it does nothing while no profiler runs.

    `record_function` takes some 25 microseconds even then, and a step has two parts or more.
    """
    return record_function(name) if _profiler_enabled() else _UNNAMED
