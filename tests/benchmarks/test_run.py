import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.engine import run
from benchmarks.engine.engine_run import Record
from benchmarks.engine.run import fell_behind
from benchmarks.engine.workloads import WORKLOADS
from tests.benchmarks.conftest import Words


@pytest.mark.parametrize("workload", ["direct", "mixed", "same-image"])
def test_a_closed_loop_is_measured(workload: str, words: Words, tmp_path: Path) -> None:
    [document] = run.main(words(workload, "--concurrency", "1,2", "--requests", "8"))
    assert json.loads((tmp_path / "figures.json").read_text()) == document
    assert [figures["offered"] for figures in document["figures"]] == [1, 2]
    for figures in document["figures"]:
        assert figures["requests"] == 8
        in_rounds = {1: 8, 2: 6}[figures["offered"]]  # whole rounds take no longer than all requests
        assert figures["requests_per_second"] * figures["seconds"] > in_rounds - 0.001
        assert 0 < figures["ttft"]["p50"] <= figures["latency"]["p50"] <= figures["latency"]["p99"]
        # of two questions about a photo the second finds it; those in flight end in any order, so a pair may be cut
        fewest, most = {"direct": (0, 0), "mixed": (2, 6), "same-image": (8, 8)}[workload]
        assert fewest <= figures["cached_requests"] <= most


def test_an_open_loop_ends_when_the_engine_falls_behind(words: Words) -> None:
    load = ("--concurrency", "2", "--requests", "8")
    [document] = run.main(words("same-image", *load, "--open-loop", "--rate", "500", "--rate-seconds", "0.2"))
    last = document["figures"][-1]
    assert last["open_loop"]
    assert last["left"] > 0
    assert last["requests_per_second"] < 0.8 * last["offered"]


def arrivals(*waits: float) -> list[Record]:
    return [Record(arrived=number, ended=number + wait) for number, wait in enumerate(waits)]


def test_falling_behind_is_to_wait_longer_and_longer() -> None:
    assert not fell_behind(arrivals(*[3.0] * 16), 16.0)
    assert not fell_behind(arrivals(*[1.0] * 12, 4.0, 1.0, 1.0, 1.0), 16.0)
    assert fell_behind(arrivals(*(0.5 * number for number in range(1, 17))), 16.0)


def test_no_time_is_reported_for_photos_that_were_cached(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.__dict__, "WORKLOADS", {"direct": replace(WORKLOADS["same-image"], repeats=False)})
    with pytest.raises(SystemExit, match="in the cache"):
        run.main(words("direct", "--concurrency", "1", "--requests", "4"))


def test_decode_counts_steps_of_whole_batches(words: Words) -> None:
    [document] = run.main(words("decode", "--concurrency", "1,2"))
    one, two = document["figures"]
    assert (one["batch"], two["batch"]) == (1, 2)
    assert one["steps"] == 127  # of 128 tokens
    assert one["mean_context"] == pytest.approx(17 + 106 + 64, abs=2)


def test_workloads_of_one_run_share_no_photo(words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    loads = words("direct", "cot", "--concurrency", "1", "--requests", "4")
    found = run.main(loads[: loads.index("--out")])
    assert [document["workload"] for document in found] == ["direct", "cot"]
    for document in found:
        assert [figures["cached_requests"] for figures in document["figures"]] == [0]
        assert json.loads((tmp_path / f"run-{document['workload']}-closed.json").read_text()) == document
    with pytest.raises(SystemExit, match="--out takes the figures of one workload"):
        run.main(loads)


def test_pairs_of_questions_are_about_photos_that_no_earlier_workload_had(
    words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    loads = words("direct", "mixed", "--concurrency", "1", "--requests", "8")
    _, mixed = run.main(loads[: loads.index("--out")])
    assert [figures["cached_requests"] for figures in mixed["figures"]] == [4]


def test_fields_of_the_engine_that_it_has_not_are_reported(words: Words) -> None:
    with pytest.raises(SystemExit, match="max_batch"):
        run.main([*words("direct"), "--engine", "batch=3"])
