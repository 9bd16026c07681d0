from pathlib import Path

from benchmarks.queue import lane_latency


def test_interactive_jobs_are_timed_beside_bulk(photos: Path, tmp_path: Path) -> None:
    flags = [
        "--model",
        "demo",
        "--device",
        "cpu",
        "--dtype",
        "fp32",
        "--asks",
        "1",
        "--bulk",
        "1",
        "--megapixels",
        "0.1",
    ]
    document = lane_latency.main(
        [*flags, "--photos", str(photos), "--seconds", "1", "--out", str(tmp_path / "figures.json")]
    )
    assert document["bulk_per_second_alone"] > 0
    assert document["p95_ratio"] == document["busy"]["p95"] / document["idle"]["p95"]
