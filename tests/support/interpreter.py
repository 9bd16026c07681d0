"""Triton's interpreter, without its slowest steps, which do nothing or the same again.

The interpreter replaces the functions of `triton.language` before a kernel runs. It looks through all of them again at
each call of one device function by another, thousands of times a kernel: a third of its time. Each sum and product of
integers is computed again in 64 bits to find overflows, and the answer is thrown away: half of the rest. Each value has
its numpy type looked up in a table that is made for it.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["keep_types", "patch_once", "skip_unread_checks"]


def patch_once() -> None:
    """Skip a replacement that was made before; does nothing to a Triton without this step."""
    from triton.runtime import interpreter

    patch, nothing = (getattr(interpreter, name, None) for name in ("_patch_lang", "_LangPatchScope"))
    if patch is not None and nothing is not None and not hasattr(patch, "__wrapped__"):
        interpreter._patch_lang = _where_needed(patch, nothing)


def skip_unread_checks() -> None:
    """Look for no overflows unless the interpreter is to report them; does nothing to a Triton without this option."""
    from triton.runtime import interpreter

    builder = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    if hasattr(options, "sanitize_overflow") and not getattr(options, "debug", True):
        builder.options = dataclasses.replace(options, sanitize_overflow=False)


def keep_types() -> None:
    """Keep the numpy type of each Triton type; does nothing to a Triton that has no such step."""
    from triton.runtime import interpreter

    find = getattr(interpreter, "_get_np_dtype", None)
    if find is None or hasattr(find, "__wrapped__"):
        return
    kept = functools.cache(find)

    @functools.wraps(find)
    def find_once(kind: Any) -> Any:
        return (find if kind.scalar.is_ptr() else kept)(kind.scalar)  # a block's type is its elements'

    interpreter._get_np_dtype = find_once


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
