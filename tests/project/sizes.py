"""Prints how large the product's files and functions are: `python -m tests.project.sizes`."""

from statistics import median, quantiles

from tests.project.modules import Module, modules

__all__ = ["report"]


def report(measured: list[Module]) -> str:
    """Return one line on files, one on functions, and the largest of each."""
    files = sorted(((module.lines, module.path) for module in measured if module.lines), reverse=True)
    functions = sorted(
        ((function.lines, f"{module.path}:{function.name}") for module in measured for function in module.functions),
        reverse=True,
    )
    return "\n".join([*_summary("files", files), *_summary("functions", functions)])


def _summary(kind: str, sizes: list[tuple[int, str]]) -> list[str]:
    lines = [size for size, _ in sizes]
    head = f"{len(lines)} {kind}, {sum(lines)} lines: median {median(lines):.0f}, p90 {quantiles(lines, n=10)[-1]:.0f}"
    return [head, *(f"  {size:4} {name}" for size, name in sizes[:5])]


if __name__ == "__main__":
    print(report(modules()))
