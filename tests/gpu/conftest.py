"""Everything in this folder needs a CUDA device: it is marked so, and skipped where there is none."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; without a CUDA device, skip them."""
    import torch

    absent = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(absent)
