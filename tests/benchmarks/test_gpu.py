import time
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import PARTS, Part


def test_parts_run_within_their_time_and_only_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = f'-c \'open("{tmp_path}/count", "a").write("x"); print(41 + 1)\''
    parts = {
        "good": Part(count, 60),
        "bad": Part("-c 'raise SystemExit(3)'", 60),
        "long": Part("-c 'print(1)'", 10_000),
    }
    words = ["--out", str(tmp_path / "figures"), "--seconds", "600"]
    assert gpu.main(words, parts=parts) == 1
    printed = capsys.readouterr().out
    assert "42" in printed
    assert "failed with 3" in printed
    assert "left out: it may take 10000 s" in printed
    assert gpu.main(["good", *words], parts=parts) == 0
    assert "done before" in capsys.readouterr().out
    assert (tmp_path / "count").read_text() == "x"
    with pytest.raises(SystemExit, match="no part is called better: there are good, bad, long"):
        gpu.main(["better"], parts=parts)


def test_a_part_that_hangs_is_ended_with_its_children(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = tmp_path / "child"
    hang = (
        "import pathlib, subprocess, sys, time;"
        "own = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']);"
        f"pathlib.Path('{child}').write_text(str(own.pid)); time.sleep(1000)"
    )
    assert gpu.main(["--out", str(tmp_path)], parts={"hangs": Part(f'-c "{hang}"', 3)}) == 1
    assert "it took more than 3 s" in capsys.readouterr().out
    until = time.monotonic() + 30
    while (state := _state(int(child.read_text()))) not in (None, "Z"):
        assert time.monotonic() < until, f"the child lives on in state {state}"


def test_every_part_names_a_module_that_exists() -> None:
    for part in PARTS.values():
        module = part.words.split()[1]
        assert (
            module == "pytest"
            or Path(*module.split(".")).with_suffix(".py").exists()
            or (Path(*module.split(".")) / "__main__.py").exists()
        ), module


def _state(pid: int) -> str | None:
    """Return the state letter of a process; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None
