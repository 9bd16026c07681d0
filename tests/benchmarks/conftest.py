from collections.abc import Callable
from pathlib import Path

import pytest

Words = Callable[..., list[str]]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos that all benchmarks here share: each is drawn once."""
    return tmp_path_factory.mktemp("photos")


@pytest.fixture
def words(photos: Path, tmp_path: Path) -> Words:
    """Put a command line together: a tiny model on the CPU, figures to a file."""

    def together(*own: str) -> list[str]:
        model = ["--model", "tiny", "--device", "cpu", "--dtype", "fp32", "--engine", "pages=300"]
        return [*own, *model, "--photos", str(photos), "--seconds", "30", "--out", str(tmp_path / "figures.json")]

    return together
