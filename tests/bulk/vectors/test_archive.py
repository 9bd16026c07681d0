"""An output whose full shards move to an archive, killed at any point."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stoop.bulk.output.output_folder import Output, opened
from tests.bulk.folder import IDENTITY, bad, good, ramdisk, rows

SHARD, COUNT = 4, 30
ACTS = ("put", "put", "put", "put", "flush", "sync", "store", "move", "end")


class MemoryArchive:
    """An `Archive` in memory, which survives the loss of power."""

    place = "memory"

    def __init__(self) -> None:
        self.kept: dict[str, list[str]] = {}

    def names(self) -> list[str]:
        return sorted(self.kept)

    def rows(self, name: str) -> Iterator[str]:
        yield from self.kept[name]

    def store(self, shard: Path) -> str:
        name = shard.name.replace("results", "vectors")
        self.kept[name] = rows(shard.parent, shard.name)
        return name


def act(output: Output, what: str, number: int | None) -> None:
    match what:
        case "put" if number is not None:
            assert output.put(bad(f"row-{number}") if number % 5 == 0 else good(f"row-{number}"))
        case "flush":
            output.flush()
        case "sync":
            output.sync()
        case "store":
            for shard in output.full_shards:
                output.store(shard)
        case "move":
            for shard in output.full_shards:
                output.drop(shard, output.store(shard))
        case "end":
            output.end_shard()


@settings(max_examples=120, deadline=None)
@given(
    killed=st.lists(st.lists(st.sampled_from(ACTS), max_size=25), min_size=1, max_size=4),
    share=st.floats(0, 1),
    forgets=st.booleans(),
)
def test_every_row_is_there_once_wherever_the_writer_is_killed(
    killed: list[list[str]], share: float, forgets: bool
) -> None:
    archive = MemoryArchive()
    with ramdisk() as home:
        folder = Path(home) / "0"
        for number, acts in enumerate(killed, start=1):
            folder = write(folder, Path(home) / str(number), archive, acts, share)
            for path in folder.glob(".index*") if forgets else ():
                path.unlink()
        folder = write(folder, Path(home) / "last", archive, ["put"] * COUNT + ["end", "move", "sync"], 1.0)
        found = [row for kept in archive.kept.values() for row in kept] + rows(folder)
    assert Counter(found) == Counter(f"row-{number}" for number in range(COUNT))


def write(folder: Path, copy: Path, archive: MemoryArchive, acts: list[str], share: float) -> Path:
    """Run the steps, and cut the power: the copy holds only a share of the bytes that were not on the disk."""
    with opened(folder, IDENTITY, shard_rows=SHARD, archive=archive) as output:
        todo = iter([number for number in range(COUNT) if not output.lookup(f"row-{number}")[0]])
        synced, full = sizes(folder), output.full_shards
        for what in acts:
            act(output, what, next(todo, None) if what == "put" else None)
            if what in ("sync", "move", "end") or output.full_shards != full:
                synced, full = sizes(folder), output.full_shards
        shutil.copytree(folder, copy)
    for path in copy.glob("*.jsonl"):
        kept = synced.get(path.name, 0)
        with path.open("rb+") as file:
            file.truncate(kept + round(share * (path.stat().st_size - kept)))
    return copy


def sizes(folder: Path) -> dict[str, int]:
    """The number of bytes written to each file."""
    return {path.name: path.stat().st_size for path in folder.glob("*.jsonl")}
