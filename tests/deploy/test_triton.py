"""The model repository for Triton follows the table of inputs."""

from deploy.triton.__main__ import CONFIG, config_text


def test_the_configuration_is_that_of_the_table() -> None:
    assert CONFIG.read_text(encoding="utf-8") == config_text(), "run python -m deploy.triton"


def test_triton_finds_the_first_version_of_the_model() -> None:
    assert (CONFIG.parent / "1" / "model.py").is_file()
