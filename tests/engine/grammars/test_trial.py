"""The process that tries grammars, when it is killed or cannot start."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from llguidance import LLMatcher

from stoop_worker.engine.grammars import trial as module
from stoop_worker.engine.grammars.trial import Trial, TrialUnavailable

GRAMMAR = LLMatcher.grammar_from_regex("[ab]c?")


@pytest.fixture
def trial() -> Iterator[Trial]:
    trial = Trial()
    yield trial
    trial.close()


def process_of(trial: Trial) -> int:
    assert trial._process is not None
    return trial._process.pid


def test_a_grammar_is_not_blamed_for_a_process_that_ended_before_it(trial: Trial) -> None:
    assert trial.refusal(GRAMMAR) is None
    ended = process_of(trial)
    os.kill(ended, signal.SIGKILL)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    assert trial.refusal(GRAMMAR) is None
    assert process_of(trial) != ended


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_does_not_end_it_before_the_worker(trial: Trial, stop: signal.Signals) -> None:
    assert trial.refusal(GRAMMAR) is None
    process = process_of(trial)
    os.kill(process, stop)
    assert trial.refusal(GRAMMAR) is None
    assert process_of(trial) == process


@pytest.mark.parametrize("program", [(sys.executable, "-c", "exit(3)"), ("/nowhere/python",)])
def test_after_a_process_fails_to_start_the_next_grammar_starts_another(
    trial: Trial, program: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(module, "_PROGRAM", program)
        with pytest.raises(TrialUnavailable, match="does not start"):
            trial.refusal(GRAMMAR)
    assert trial.refusal(GRAMMAR) is None
