from pathlib import Path

from benchmarks.front import run as front


def test_the_parts_add_up(photos: Path, tmp_path: Path) -> None:
    flags = ["--jobs", "100", "--concurrency", "8", "--count", "3", "--photos", str(photos)]
    document = front.main([*flags, "--out", str(tmp_path / "figures.json")])
    spent = document["cpu_ms_per_job"]
    assert document["jobs_per_second"] > 0
    assert all(spent[part] > 0 for part in ("image", "loop", "engine"))
    threads = sum(cost for part, cost in spent.items() if part not in ("front", "engine"))
    assert 0.5 * threads < spent["front"] < 2 * threads + 1
