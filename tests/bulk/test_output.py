import os
import resource
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop.bulk.output.index import Extent, Index
from stoop.bulk.output.output_folder import Identity, Output, opened
from stoop.errors import ConfigError
from tests.bulk.folder import IDENTITY, bad, good, ramdisk, rows

SHARD = 7


def put(output: Output, number: int) -> bool:
    name = f"row-{number}"
    return output.put(bad(name) if number % 5 == 0 else good(name))


@st.composite
def sessions(draw: st.DrawFn) -> list[list[str]]:
    """The steps of each session before it is killed: put rows, flush them to the kernel, or sync them to the disk."""
    acts = st.lists(st.sampled_from(["put", "put", "put", "flush", "sync"]), max_size=25)
    return draw(st.lists(acts, min_size=1, max_size=4))


class Run:
    """A folder under which the power is cut again and again; each cut leaves a copy of the written files."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.folder = home / "0"
        self._cuts = 0

    def write(self, acts: list[str], count: int) -> dict[str, int]:
        """Run the steps, and cut the power; return the size of each file up to its last sync."""
        synced: dict[str, int] = {}
        with opened(self.folder, IDENTITY, shard_rows=SHARD) as output:
            todo = iter([number for number in range(count) if not output.lookup(f"row-{number}")[0]])
            synced = self._sizes()
            for act in acts:
                if act == "put" and (number := next(todo, None)) is not None:
                    shards = len(list(self.folder.glob("results-*")))
                    assert put(output, number)
                    if len(list(self.folder.glob("results-*"))) > shards:
                        synced = self._sizes()
                elif act == "flush":
                    output.flush()
                elif act == "sync":
                    output.sync()
                    synced = self._sizes()
            self._cuts += 1
            copy = self._home / str(self._cuts)
            shutil.copytree(self.folder, copy)
        self.folder = copy
        return synced

    def lose(self, synced: dict[str, int], share: float) -> None:
        """Lose a share of the bytes that were not on the disk yet."""
        for path in self.folder.glob("*.jsonl"):
            kept = synced.get(path.name, 0)
            with path.open("rb+") as file:
                file.truncate(kept + round(share * (path.stat().st_size - kept)))

    def _sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.folder.glob("*.jsonl")}


@settings(max_examples=100)
@given(killed=sessions(), share=st.floats(0, 1), count=st.integers(1, 40))
def test_every_row_is_there_once_wherever_the_writer_is_killed(
    killed: list[list[str]], share: float, count: int
) -> None:
    with ramdisk() as home:
        run = Run(Path(home))
        for acts in killed:
            run.lose(run.write(acts, count), share)
        with opened(run.folder, IDENTITY, shard_rows=SHARD) as output:
            for number in range(count):
                done, _ = output.lookup(f"row-{number}")
                assert put(output, number) is not done
            assert output.totals.ended == count
            assert output.totals.failed == len(range(0, count, 5))
        assert Counter(rows(run.folder)) == Counter(f"row-{number}" for number in range(count))
        sizes = [len(path.read_bytes().splitlines()) for path in sorted(run.folder.glob("results-*"))]
        assert sizes[:-1] == [SHARD] * (len(sizes) - 1)


@settings(max_examples=20)
@given(cut=st.integers(1, 200))
def test_rows_that_reached_the_disk_are_not_run_again(cut: int) -> None:
    with ramdisk() as home:
        run = Run(Path(home))
        synced = run.write(["put"] * 9 + ["sync"] + ["put"] * 3 + ["flush"], 12)
        before = rows(run.folder)
        run.lose(synced, 1 - cut / 200)
        with opened(run.folder, IDENTITY, shard_rows=SHARD) as output:
            todo = [number for number in range(12) if not output.lookup(f"row-{number}")[0]]
        assert len(before) == 12
        assert min(todo, default=12) >= 9


def test_the_time_of_a_killed_session_is_not_lost(tmp_path: Path) -> None:
    with opened(tmp_path / "run", IDENTITY) as output:
        output.sync()
        began = (tmp_path / "run" / "results-00000.jsonl").stat().st_mtime
        output.put(good("a"))
        output.flush()
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
    os.utime(tmp_path / "copy" / "results-00000.jsonl", (began + 3, began + 3))
    with opened(tmp_path / "copy", IDENTITY) as output:
        assert output.totals.seconds == pytest.approx(3, abs=0.5)


def test_a_full_shard_is_on_the_disk_before_the_next_one_begins(tmp_path: Path) -> None:
    with opened(tmp_path / "run", IDENTITY, shard_rows=3) as output:
        for number in range(1, 5):
            output.put(good(str(number)))
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
    index = Index(tmp_path / "copy" / ".index.sqlite")
    size = (tmp_path / "run" / "results-00000.jsonl").stat().st_size
    assert index.extents()["results-00000.jsonl"] == Extent(size, 3)
    index.close()


def test_a_row_is_written_once(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY) as output:
        assert output.put(good("a"))
        assert not output.put(good("a"))
        assert not output.put(bad("a"))
    assert rows(tmp_path) == ["a"]


def test_a_lost_or_broken_index_is_rebuilt(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY, shard_rows=3) as output:
        for number in range(10):
            put(output, number)
    totals = output.totals
    for spoil in (Path.unlink, lambda path: path.write_bytes(b"no database" * 1000)):
        spoil(tmp_path / ".index.sqlite")
        with opened(tmp_path, IDENTITY, shard_rows=3) as output:
            assert all(output.lookup(f"row-{number}")[0] for number in range(10))
            assert not output.lookup("row-10")[0]
            assert (output.totals.completed, output.totals.failed) == (totals.completed, totals.failed) == (8, 2)


def test_a_shard_damaged_during_a_run_is_left_to_the_user(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY, shard_rows=3) as output:
        for number in range(1, 5):
            output.put(good(str(number)))
    (tmp_path / ".index.sqlite").unlink()
    shard = tmp_path / "results-00000.jsonl"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-20])
    with pytest.raises(ConfigError, match=r"results-00000\.jsonl is damaged at line 3"), opened(tmp_path, IDENTITY):
        pass
    shard.unlink()
    with opened(tmp_path, IDENTITY, shard_rows=3) as output:
        assert [output.lookup(str(number))[0] for number in range(1, 5)] == [False, False, False, True]
        for number in range(1, 5):
            output.put(good(str(number)))
    assert sorted(rows(tmp_path)) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", ["results-00000.jsonl", "errors.jsonl"])
def test_whole_lines_behind_a_damaged_one_are_kept(tmp_path: Path, name: str) -> None:
    make = good if name.startswith("results") else bad
    with opened(tmp_path, IDENTITY) as output:
        for number in range(1, 6):
            output.put(make(str(number)))
    (tmp_path / ".index.sqlite").unlink()
    path = tmp_path / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:1], lines[1][:-20], b"\n", *lines[2:], b'{"row": "6", "id')))
    with opened(tmp_path, IDENTITY) as output:
        assert [output.lookup(str(number))[0] for number in range(1, 7)] == [True, False, True, True, True, False]
        assert output.totals.ended == 4
        output.put(make("2"))
    assert rows(tmp_path, name) == ["1", "3", "4", "5", "2"]


def test_failed_rows_are_tried_again_on_request(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY) as output:
        output.put(good("a"))
        output.put(bad("b"))
    with opened(tmp_path, IDENTITY) as output:
        assert output.lookup("b") == (True, 0)
    with opened(tmp_path, IDENTITY, again=True) as output:
        assert output.lookup("a") == (True, 0)
        assert output.lookup("b") == (False, 1)
        assert (output.totals.completed, output.totals.failed) == (1, 0)
        output.put(bad("b"))
    with opened(tmp_path, IDENTITY, again=True) as output:
        assert output.lookup("b") == (False, 2)
        output.put(good("b"))
    assert sorted(rows(tmp_path, "results-*")) == ["a", "b"]
    assert rows(tmp_path, "errors.jsonl") == []
    assert rows(tmp_path, "errors.retried-*") == ["b", "b"]


def test_errors_that_are_torn_are_tried_again_too(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY) as output:
        output.put(bad("a"))
        output.put(bad("b"))
    with (tmp_path / "errors.jsonl").open("ab") as file:
        file.write(b'{"row": "c", "id')
    with opened(tmp_path, IDENTITY, again=True) as output:
        assert [output.lookup(name) for name in "abc"] == [(False, 1), (False, 1), (False, 0)]
    assert rows(tmp_path, "errors.retried-*") == ["a", "b"]


def test_one_process_works_in_a_folder(tmp_path: Path) -> None:
    with (
        opened(tmp_path, IDENTITY),
        pytest.raises(ConfigError, match="another stoop bulk is writing to"),
        opened(tmp_path, IDENTITY),
    ):
        pass


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (Identity({"source": "s3://photos/"}, {"skill": "caption"}), "skill 'query' and not 'caption'"),
        (Identity({"source": "s3://photos/"}, {"skill": "query", "seed": 1}), "seed None and not 1"),
        (Identity({"source": "s3://scans/"}, {"skill": "query"}), "source 's3://photos/' and not 's3://scans/'"),
    ],
)
def test_another_run_is_kept_out_of_the_folder(tmp_path: Path, identity: Identity, message: str) -> None:
    with opened(tmp_path, IDENTITY) as output:
        output.put(good("a"))
    with pytest.raises(ConfigError, match=message), opened(tmp_path, identity):
        pass
    assert rows(tmp_path) == ["a"]


def test_results_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "results-00000.jsonl").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"results-00000\.jsonl and no run\.json"), opened(tmp_path, IDENTITY):
        pass
    assert (tmp_path / "results-00000.jsonl").read_text() == "mine\n"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"), opened(tmp_path / "file" / "out", IDENTITY):
        pass


def test_an_index_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".index.sqlite").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write to .* fix that, then resume"), opened(tmp_path, IDENTITY):
        pass


def test_a_full_disk_is_reported_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    with opened(tmp_path, IDENTITY) as output:
        output.put(good("a"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # the largest file that may be written
    try:
        with (
            pytest.raises(ConfigError, match=r"cannot write to .* fix that, then resume"),
            opened(tmp_path, IDENTITY) as output,
        ):
            for number in range(4000):
                put(output, number)
            output.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with opened(tmp_path, IDENTITY) as output:
        for number in range(4000):
            put(output, number)
    assert Counter(rows(tmp_path)) == Counter(["a", *(f"row-{number}" for number in range(4000))])
