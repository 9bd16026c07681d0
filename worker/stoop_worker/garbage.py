"""Keeps Python's garbage collector away from objects that live as long as the process."""

import gc

__all__ = ["keep_what_is_loaded"]


def keep_what_is_loaded() -> None:
    """Leave all objects that exist now out of every later collection.

    Modules, the model and its captured graphs are hundreds of thousands of objects, and a full collection visits each
    one. Objects that jobs make are still collected.
    """
    gc.collect()
    gc.freeze()
