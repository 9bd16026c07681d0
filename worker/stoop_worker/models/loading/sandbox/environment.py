"""The environment of chat templates: jinja2's sandbox, in which a budget bounds all work."""

from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from stoop_worker.models.loading.sandbox.budget import (
    ROUND_COST,
    look_at,
    look_in,
    measure,
    size_of,
    spend,
    text_of,
)
from stoop_worker.models.loading.sandbox.filters import join, paid_filters, paid_tests, replace

__all__ = ["Sandbox"]

_MOST_BITS: Final = 64
_TEXT_METHODS: Final = frozenset(
    (
        *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal"),
        *("isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition"),
        *("removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"),
        *("splitlines", "startswith", "strip", "swapcase", "title", "upper"),
    )
)
_METHODS: Final[tuple[tuple[Any, frozenset[str]], ...]] = (
    (str, _TEXT_METHODS),
    (dict, frozenset(("get", "items", "keys", "values"))),
    ((list, tuple, range, bytes, int, float), frozenset()),
)
"""The methods of values that a template may call. Others make much from little, or look at all parts of a value."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of chat templates: the one of transformers, without the parts that no such template needs."""

    intercepted_binops = frozenset({"*", "+", "-", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"], finalize=text_of
        )
        del self.globals["lipsum"], self.globals["cycler"], self.globals["joiner"]
        # attributes, because a template could give a global's name to a function of its own choice
        self.spend, self.joined, self.look_at, self.look_in = spend, _joined, look_at, look_in
        self.filters: dict[str, Any] = paid_filters(self.filters)
        self.tests: dict[str, Any] = paid_tests(self.tests)

    def compile_template(self, source: str) -> jinja2.Template:
        """Compile a template in which every loop and every concatenation is charged to the budget."""
        tree = _Metered().visit(self.parse(source))
        tree.set_environment(self)
        return self.from_string(tree)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Refuse also methods whose work the budget does not bound."""
        for kinds, allowed in _METHODS:
            if isinstance(obj, kinds):
                return attr in allowed
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Charge the result to the budget before it is made."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("a chat template may not format strings with %")
        if operator == "*" and (size_of(left) or size_of(right)):
            spend(max(size_of(left), 1) * max(size_of(right), 1) * max(_count(left), _count(right)))
        elif size_of(left) or size_of(right):
            spend(size_of(left) + size_of(right))
        elif max(_bits(left), _bits(right)) > _MOST_BITS or (operator == "**" and _count(right) > _MOST_BITS):
            raise SecurityError("a chat template may not compute with such large numbers")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Charge the inputs of a function or a method to the budget; a macro and our own functions charge theirs."""
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if not isinstance(obj, Macro) and not any(obj is own for own in (spend, _joined, look_at, look_in)):
            spend(size_of(owner))
            for value in (*args, *kwargs.values()):
                measure(value)
        if isinstance(owner, str) and name == "replace":
            return replace(owner, *args)
        if isinstance(owner, str) and name == "join":
            return join(args[0], owner)
        return super().call(context, obj, *args, **kwargs)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Pay for slices and for keys."""
        if isinstance(argument, slice):
            spend(size_of(obj))
        elif not isinstance(argument, str | int):
            look_at(argument)
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
        return _calling("joined", node.nodes, node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _looking(node.expr, "look_at")
        for operand in node.ops:
            operand.expr = _looking(operand.expr, "look_in" if operand.op in ("in", "notin") else "look_at")
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _looking(node.key, "look_at")
        return node

    def _charged(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        constant = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        cost = nodes.Const(ROUND_COST + constant, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(_calling("spend", [cost], node.lineno), lineno=node.lineno))
        return node


def _looking(node: nodes.Expr, function: str) -> nodes.Expr:
    """Return a node that pays for looking at a node's value."""
    if isinstance(node, nodes.Const):
        return node
    return _calling(function, [node], node.lineno)


def _calling(function: str, values: list[nodes.Expr], line: int) -> nodes.Call:
    """Return a call of one of the environment's own functions."""
    return nodes.Call(nodes.EnvironmentAttribute(function), values, [], None, None, lineno=line)


def _joined(*values: Any) -> str:
    return "".join(map(text_of, values))


def _count(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 1


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
