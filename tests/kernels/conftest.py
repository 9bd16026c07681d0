"""Files `test_*_kernel.py` run Triton kernels on CPU tensors, in Triton's interpreter.

The interpreter is chosen before Triton is first imported, for the whole process; so where there is a CUDA device these
files are left out, and `tests/gpu` tests the compiled kernels.
"""

import os

import torch

from stoop_worker.kernels.backend import has_triton
from tests.support.interpreter import keep_types, patch_once, skip_unread_checks

__all__: list[str] = []

collect_ignore_glob: list[str] = []

if has_triton() and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    patch_once()
    skip_unread_checks()
    keep_types()
else:
    collect_ignore_glob.append("test_*_kernel.py")
