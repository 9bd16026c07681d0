import re
from pathlib import Path

import pytest

from stoop_schemas.job import MODEL_PATTERN
from stoop_worker import models
from stoop_worker.errors import ConfigError
from stoop_worker.models.catalog import read_catalog

CATALOG = read_catalog()
ONE = 'repository = "a/b"\nfamily = "moondream"\ncontext = 2048\nlicence = "MIT"\n'


def test_a_short_name_is_a_repository_at_its_revision() -> None:
    chosen = CATALOG.choose("moondream2")
    assert (chosen.source, chosen.name) == ("vikhyatk/moondream2", "moondream2")
    assert chosen.revision is not None and re.fullmatch("[0-9a-f]{40}", chosen.revision)


def test_a_repository_of_the_catalog_has_its_short_name() -> None:
    assert CATALOG.choose("vikhyatk/moondream2") == CATALOG.choose("moondream2")


def test_a_revision_that_is_asked_for_wins() -> None:
    assert CATALOG.choose("moondream2", "2025-04-14").revision == "2025-04-14"


def test_a_folder_is_used_as_it_is_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moondream2").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = CATALOG.choose("moondream2")
    assert (chosen.source, chosen.revision, chosen.name) == ("moondream2", None, None)


def test_the_catalog_caps_the_context_of_its_models() -> None:
    assert (CATALOG.choose("moondream2").context, CATALOG.choose("somebody/else").context) == (2048, 32_768)


def test_a_model_outside_the_catalog_is_left_unchanged() -> None:
    chosen = CATALOG.choose("somebody/else", "abc")
    assert (chosen.source, chosen.revision, chosen.name) == ("somebody/else", "abc", None)


@pytest.mark.parametrize("entry", CATALOG.entries.values(), ids=lambda entry: entry.name)
def test_every_entry_can_be_named_by_a_job_and_run_by_a_family(entry) -> None:
    assert re.fullmatch(MODEL_PATTERN, entry.name)
    assert (Path(models.__file__).parent / entry.family).is_dir()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[m]\n" + ONE + "colour = 1\n", "unknown fields: colour"),
        ("[m]\n" + ONE.replace("context", "#"), "context must be there"),
        ("[m]\n" + ONE + "sampling = {seed = 1}\n", "no field seed"),
        ("[m]\n" + ONE + 'sampling = {top_p = "high"}\n', "no field top_p"),
    ],
)
def test_an_entry_that_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_catalog(text)
