"""Runs templates that come with a model: programs by strangers, in jinja2's sandbox with a budget of work.

jinja2's sandbox keeps a template from Python's internals and from changing its arguments. It does not bound work: ten
lines can double a string forty times. Here each iteration of a loop, and each value made, is charged to a budget.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

__all__ = ["Sandbox", "TooMuchWork", "budget"]

_ROUND_COST: Final = 20  # of a round of a loop, and of looking at a value, in characters
_MOST_BITS: Final = 64
_FILTERS: Final = frozenset(
    (
        *("abs", "batch", "bool", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
        *("groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min"),
        *("reject", "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort"),
        *("string", "sum", "title", "tojson", "trim", "truncate", "unique", "upper", "wordcount"),
    )
)
# methods of strings whose results are much longer than the string; no chat template is known to use them
_REFUSED: Final = frozenset({"center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill"})

_left: ContextVar[list[int]] = ContextVar("left")


class TooMuchWork(SecurityError):
    """The template made more than its budget allows."""


@contextmanager
def budget(characters: int) -> Iterator[None]:
    """Bound the output of the templates in this block, with all intermediate values, in characters."""
    token = _left.set([characters])
    try:
        yield
    finally:
        _left.reset(token)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of chat templates: the one of transformers, without the parts that no such template needs."""

    intercepted_binops = frozenset({"*", "+", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"], finalize=_text
        )
        del self.globals["lipsum"], self.globals["cycler"], self.globals["joiner"]
        self.globals |= {"_turn": _spend, "_concat": _concat}
        own = {"tojson": _to_json, "string": _text, "replace": _replace, "join": _join}
        self.filters = {name: _paid(own.get(name, self.filters[name])) for name in _FILTERS & {*self.filters, *own}}

    def compile_template(self, source: str) -> jinja2.Template:
        """Compile a template in which every loop and every concatenation is charged to the budget."""
        tree = _Metered().visit(self.parse(source))
        tree.set_environment(self)
        return self.from_string(tree)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Refuse also the methods that make long strings from short ones."""
        refused = isinstance(obj, str) and attr in _REFUSED
        return not refused and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Charge the result to the budget before it is made."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("a chat template may not format strings with %")
        if operator == "*" and (_size(left) or _size(right)):
            _spend(max(_size(left), 1) * max(_size(right), 1) * max(_count(left), _count(right)))
        elif _size(left) or _size(right):
            _spend(_size(left) + _size(right))
        elif max(_bits(left), _bits(right)) > _MOST_BITS or (operator == "**" and _count(right) > _MOST_BITS):
            raise SecurityError("a chat template may not compute with such large numbers")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Charge the size of a method's input to the budget, or that of its result if it is larger."""
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        _spend(_size(owner))
        if isinstance(owner, str) and name == "replace":
            return _replace(owner, *args)
        if isinstance(owner, str) and name == "join":
            return _join(args[0], owner)
        return super().call(context, obj, *args, **kwargs)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Pay for slices."""
        if isinstance(argument, slice):
            _spend(_size(obj))
        return super().getitem(obj, argument)


class _Generation(Extension):
    """Accepts `{% generation %}`, which marks the text that a model is trained on, and has no effect here."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own form)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Metered(NodeTransformer):
    """Charges each turn of a loop and each call of a macro for itself and its constant text."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._charged(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._charged(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._charged(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return nodes.Call(nodes.Name("_concat", "load"), node.nodes, [], None, None, lineno=node.lineno)

    def _charged(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        constant = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        cost = nodes.Const(_ROUND_COST + constant, lineno=node.lineno)
        call = nodes.Call(nodes.Name("_turn", "load"), [cost], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))
        return node


def _spend(amount: int) -> None:
    left = _left.get()
    left[0] -= amount
    if left[0] < 0:
        raise TooMuchWork("the model's chat template does not finish, or makes too long a text")


def _paid(made_by: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(made_by)  # also copies jinja2's marks of what it passes
    def filtered(*args: Any, **kwargs: Any) -> Any:
        _spend(sum(map(_size, args)))
        made = made_by(*args, **kwargs)
        _spend(_size(made))
        return made

    return filtered


def _text(value: Any) -> str:
    _measure(value)
    return str(value)


def _concat(*values: Any) -> str:
    return "".join(map(_text, values))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    times = text.count(old) if count is None else min(count, text.count(old))
    _spend(times * len(new))
    made: str = text.replace(old, new, -1 if count is None else count)
    return made


def _join(values: Any, between: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        raise SecurityError("a chat template may join values, but not attributes")
    found = list(values)
    _spend(len(found) * (1 + len(between)))
    return between.join(map(_text, found))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter it escapes nothing for HTML, as transformers' does not."""
    _measure(value)
    if isinstance(indent, int) and indent > 16:
        raise SecurityError("a chat template may indent JSON by at most 16 spaces")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _measure(value: Any) -> None:
    """Pay for a value's text; a part that occurs many times in it counts each time."""
    _spend(_ROUND_COST + _size(value))
    if isinstance(value, dict):
        for key, each in value.items():
            _measure(key)
            _measure(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _measure(each)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _count(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 1


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
