import io
import json

import pytest
import structlog

from stoop_worker.logs import configure_logs


@pytest.mark.parametrize("form", ["json", "console"])
def test_only_the_place_and_type_of_an_exception_are_logged(form: str, capsys: pytest.CaptureFixture[str]) -> None:
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
    output = capsys.readouterr().err
    assert "planted question" not in output
    for word in ("a defect", "builtins.KeyError", "builtins.ValueError", "test_logs.py", "which led to"):
        assert word in output


def test_an_exception_given_by_value_is_logged_too(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_error_that_is_its_own_cause_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    error = ValueError("planted")
    error.__cause__ = error
    try:
        structlog.get_logger("test").error("lost", exc_info=error)
    finally:
        structlog.reset_defaults()
    assert json.loads(capsys.readouterr().err)["exception"] == "builtins.ValueError"


class _FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("No space left on device")


def test_a_full_disk_does_not_stop_a_caller_that_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", _FullDisk())
    configure_logs("info", "json")
    try:
        structlog.get_logger("test").error("lost")
    finally:
        structlog.reset_defaults()
