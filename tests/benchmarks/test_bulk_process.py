import subprocess
import sys

import pytest

from benchmarks.bulk.process import BulkProcess


def test_lines_that_arrive_together_are_all_there_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen
    program = "import sys; print('answer'); sys.stderr.write('one\\ntwo\\nthree\\n'); sys.exit(3)"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **how: start([sys.executable, "-c", program], **how))
    run = BulkProcess([], {})
    run.wait_for("one")
    assert run.finish() == (3, "answer\n", "one\ntwo\nthree\n")
