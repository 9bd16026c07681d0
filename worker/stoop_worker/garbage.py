"""Keeps Python's garbage collector away from objects that live as long as the process."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["keep_what_is_loaded", "without_collection"]


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect nothing inside the `with`, which imports modules: they stay, and the collector would walk them all again
    and again. That took a sixth of the time of the engine's imports.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def keep_what_is_loaded() -> None:
    """Leave all objects that exist now out of every later collection.

    Modules, the model and its captured graphs are hundreds of thousands of objects, and a full collection visits each
    one. Objects that jobs make are still collected.
    """
    gc.collect()
    gc.freeze()
