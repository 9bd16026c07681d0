"""Signals to a process that is not the tests' own."""

import signal
import subprocess
import sys
import time

import pytest

from stoop_worker.shutdown import LAST_RESORT_SECONDS

# Prints the signals that it gets; the first argument is Python to run in the loop once it listens.
PROGRAM = """
import asyncio, sys, time
from stoop_worker.shutdown import Shutdown
async def main():
    shutdown = Shutdown(grace=float(sys.argv[2]))
    ended = asyncio.Event()
    early = await shutdown.unless_asked(asyncio.sleep(0, "done"))
    say("listening", early, shutdown.asked)
    exec(sys.argv[1], {**globals(), **locals()}) if sys.argv[1] else None
    if sys.argv[1] == "":
        shutdown.on_signals(lambda: say("drain"), lambda: (say("stop now"), ended.set()))
    else:
        say(await shutdown.unless_asked(asyncio.Event().wait()), shutdown.asked)
        shutdown.on_signals(lambda: (say("drain"), ended.set()), lambda: None)
    await ended.wait()
def say(*words):
    print(*words, flush=True)
asyncio.run(main())
"""


@pytest.fixture
def start():
    started = []

    def start(script: str, grace: float = 60) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROGRAM, script, str(grace)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "listening done False\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_first_signal_drains_and_the_second_hurries(start) -> None:
    process = start("")
    process.send_signal(signal.SIGTERM)
    while (line := heard(process)) != "drain":  # a line of the log may come first
        assert line
    process.send_signal(signal.SIGINT)
    while (line := heard(process)) != "stop now":
        assert line
    assert process.wait(10) == 0


def test_a_signal_interrupts_the_current_wait_and_is_reported_later(start) -> None:
    process = start("pass")
    process.send_signal(signal.SIGTERM)
    lines = []
    while "drain" not in lines:
        lines.append(heard(process))
        assert lines[-1]
    assert "None True" in lines
    assert process.wait(10) == 0


def test_a_loop_that_is_stuck_ends_soon_after_the_second(start) -> None:
    process = start("say('stuck')\nwhile True: time.sleep(0.05)")
    assert heard(process) == "stuck"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(20) == 1
    assert time.monotonic() - began < LAST_RESORT_SECONDS + 10
