import json

import pytest
import structlog

from worker.logs import configure_logs


@pytest.mark.parametrize("form", ["json", "console"])
def test_of_an_exception_only_place_and_type_are_said(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", form)
    try:
        question = "planted question"
        try:
            try:
                raise KeyError(question)
            except KeyError as error:
                raise ValueError(f"cannot answer {question!r}") from error
        except ValueError:
            structlog.get_logger("test").exception("a defect", job="a")
    finally:
        structlog.reset_defaults()
    said = capsys.readouterr().err
    assert "planted question" not in said
    for word in ("a defect", "builtins.KeyError", "builtins.ValueError", "test_logs.py", "which led to"):
        assert word in said


def test_an_exception_given_by_value_is_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    try:
        structlog.get_logger("test").error("lost", exc_info=ValueError("planted"))
        structlog.get_logger("test").info("fine")
        structlog.get_logger("test").debug("not said")
    finally:
        structlog.reset_defaults()
    lost, fine = map(json.loads, capsys.readouterr().err.splitlines())
    assert lost["exception"] == "builtins.ValueError"
    assert "exception" not in fine
