"""The gateways' addresses, and a report of each check that has passed, for the programs in Python."""

import base64
import os
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

UP = os.environ["STOOP_UP"]
STREAMING = os.environ["STOOP_STREAMING"]
TEXTS = os.environ["STOOP_TEXTS"]
SPEECH = os.environ["STOOP_SPEECH"]
RECORDING = Path(os.environ["STOOP_RECORDING"])
SPOKEN = "Band 11. Band 54."
SHAPES = os.environ["STOOP_SHAPES"]
SHAPE = os.environ["STOOP_SHAPE"]
MODEL = "demo"
COUNT = "How many shapes are there?"
PICTURE = Path(os.environ["STOOP_PICTURE"]).read_bytes()
PICTURE_URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
WORDS = "".join(["word-0", *(f" word-{i}" for i in range(1, 12))])
UNENDING = f"tell 4 until {os.environ['STOOP_GATE']}"


def cancel_job(job_id: str) -> None:
    """Cancel a job by the native route, as another client would."""
    request = urllib.request.Request(f"{STREAMING}/v1/jobs/{job_id.removeprefix('chatcmpl-')}", method="DELETE")
    urllib.request.urlopen(request, timeout=30).close()


def expect(kind: type[BaseException], call: Callable[[], object], *, message: str = "") -> BaseException:
    """Return the error of this kind that the call must raise; its text must contain `message`."""
    try:
        found = call()
    except kind as error:
        assert message in str(error), f"{message!r} is not in {error!r}"
        return error
    raise AssertionError(f"expected {kind.__name__}, not {found!r}")


def run(*checks: Callable[[], None]) -> None:
    """Run the checks one after another, and report each with its time."""
    for check in checks:
        began = time.perf_counter()
        check()
        print(f"  {check.__name__:12} {time.perf_counter() - began:5.1f} s", flush=True)
