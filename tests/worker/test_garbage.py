"""The collector stays off for imports alone."""

import gc
from collections.abc import Iterator

import pytest

from stoop_worker.garbage import without_collection


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("collects", [True, False])
def test_after_the_imports_the_collector_is_as_before(collects: bool) -> None:
    if not collects:
        gc.disable()
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled() == collects


def test_a_failed_import_leaves_the_collector_on() -> None:
    with pytest.raises(ModuleNotFoundError), without_collection():
        raise ModuleNotFoundError("absent")
    assert gc.isenabled()
