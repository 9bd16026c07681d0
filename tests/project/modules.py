"""The product's modules, parsed from their source."""

import ast
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

__all__ = ["ROOT", "VERSION", "Function", "Module", "modules"]

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
PACKAGES = ("schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker")


@dataclass(frozen=True, slots=True)
class Function:
    """One function: `lines` from its `def` to its end, docstring and all; `parameters` without self and cls.

    Device functions have no `parameters`: there is nothing to gather pointers, strides and constants in.
    """

    name: str
    lines: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path under the root, and its parsed text."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def listed(self) -> list[str] | None:
        """The names in `__all__`, or None if there is none."""
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    return list(ast.literal_eval(value))
                case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                    return list(ast.literal_eval(value))
        return None

    @property
    def defined(self) -> set[str]:
        """The public names the module itself defines: neither its logger nor the commands it registers."""
        names = {name for node in self.tree.body for name in _defined_by(node)}
        return {name for name in names if not name.startswith("_")}

    @property
    def imported(self) -> set[str]:
        """The public names that the module imports, also those that only a type checker sees imported."""
        checked = [each for node in self.tree.body if _is_type_checking(node) for each in node.body]
        found = (node for node in [*self.tree.body, *checked] if isinstance(node, ast.Import | ast.ImportFrom))
        names = {(alias.asname or alias.name).split(".")[0] for node in found for alias in node.names}
        return {name for name in names if not name.startswith("_") and name != "TYPE_CHECKING"}

    @property
    def functions(self) -> list[Function]:
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return [_measure(node) for node in found]

    @property
    def classes(self) -> list[str]:
        return [node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]


def modules() -> list[Module]:
    """Read every source file of the product."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [_read(path) for path in paths]


@functools.cache
def _read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


def _is_type_checking(node: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _defined_by(node: ast.stmt) -> list[str]:
    match node:
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr="get_logger" | "getLogger"))):
            return []
        case ast.FunctionDef(decorator_list=decorators) if any(".command(" in ast.unparse(each) for each in decorators):
            return []
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _measure(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
    if any(ast.unparse(decorator).startswith("triton.jit") for decorator in node.decorator_list):
        named = []
    return Function(node.name, (node.end_lineno or node.lineno) - node.lineno + 1, len(named))
