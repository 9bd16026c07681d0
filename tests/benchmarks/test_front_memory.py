from pathlib import Path

from benchmarks.front import memory as front_memory


def test_jobs_about_one_image_take_its_memory_once(tmp_path: Path) -> None:
    flags = ["--jobs", "24", "--megapixels", "6", "--engine-seconds", "0.02"]
    found = front_memory.main([*flags, "--folder", str(tmp_path), "--out", str(tmp_path / "figures.json")])
    assert 0 < found["shared_at_peak"] < 3 * 18_000_000
    assert found["own_at_peak"] - found["own_before"] < 6 * 18_000_000
    assert found["own_afterwards"] - found["own_before"] < 2 * 18_000_000
