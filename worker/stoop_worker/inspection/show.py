"""Prints the facts about a checkpoint, for a person."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from stoop_worker.inspection.facts import Facts, Memory
from stoop_worker.inspection.weights import Count
from stoop_worker.models.moondream.statistics import LayerStatistics, Spread

__all__ = ["show"]


def show(facts: Facts, layers: Sequence[LayerStatistics], out: Console) -> None:
    """Print the facts, and the statistics of a prompt if there are any."""
    size = sum(facts.files.values())
    out.print(f"{facts.name}: family {facts.family}, {len(facts.files)} weight file(s), {_size(size)}", markup=False)
    active = facts.active_parameters
    used = "" if active == facts.total.parameters else f", {active:,} of them for each token"
    out.print(f"{facts.total.parameters:,} parameters{used}")
    out.print(_counts("part", facts.parts))
    out.print(_counts("dtype", facts.dtypes))
    out.print(_needed(facts.memory))
    if layers:
        out.print(_statistics(layers))


def _counts(title: str, counts: Mapping[str, Count]) -> Table:
    table = Table(title, "tensors", "parameters", "bytes", box=None)
    for name, count in counts.items():
        table.add_row(name, f"{count.tensors:,}", f"{count.parameters:,}", _size(count.bytes))
    return table


def _needed(memory: Memory) -> str:
    text = f"memory in {memory.dtype}: {_size(memory.weights)} for the weights"
    if memory.cache_per_token is None or memory.cache_per_context is None:
        return text
    return (
        f"{text}; {memory.cache_per_token:,} bytes of keys and values for each token,"
        f" {_size(memory.cache_per_context)} for a context of {memory.context:,}"
    )


def _statistics(layers: Sequence[LayerStatistics]) -> Table:
    table = Table("layer", "tau of q", "tau of v", "length of keys", "length of values", "largest", "experts", box=None)
    for each in layers:
        spreads = (each.tau_q, each.tau_v, each.key_length, each.value_length)
        table.add_row(str(each.layer), *map(_spread, spreads), f"{each.largest:.3g}", _load(each.expert_tokens))
    return table


def _load(tokens: Sequence[int] | None) -> str:
    """Return how uneven the choice of experts is: the busiest expert's share over an even share, and the idle ones."""
    if tokens is None:
        return "-"
    return f"busiest {max(tokens) * len(tokens) / sum(tokens):.1f} times even, {tokens.count(0)} of {len(tokens)} idle"


def _spread(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.least:.3g} … {spread.mean:.3g} … {spread.most:.3g}"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
