"""Triton's interpreter, without its slowest step where that does nothing.

The interpreter replaces the functions of `triton.language` before a kernel runs. It looks through all of them again at
each call of one device function by another, thousands of times a kernel: a third of its time.
"""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["patch_once"]


def patch_once() -> None:
    """Skip the replacement where it has been made; does nothing to a Triton that has no such step."""
    from triton.runtime import interpreter

    patch, nothing = (getattr(interpreter, name, None) for name in ("_patch_lang", "_LangPatchScope"))
    if patch is not None and nothing is not None and not hasattr(patch, "__wrapped__"):
        interpreter._patch_lang = _where_needed(patch, nothing)


def _where_needed(patch: Callable[[Any], Any], nothing: Callable[[], Any]) -> Callable[[Any], Any]:
    import triton.language as tl

    @functools.cache
    def seen_from(function: Any) -> list[ModuleType]:
        seen = [each for each in function.__globals__.values() if inspect.ismodule(each)]
        return [each for each in (tl, tl.core) if each in seen]

    @functools.wraps(patch)
    def patch_where_needed(function: Any) -> Any:
        needed = any(tl.core.is_builtin(module.load) for module in seen_from(function))
        return patch(function) if needed else nothing()

    return patch_where_needed
