"""Skills that take many of the engine's requests for one job.

transcription.py  a recording, window by window, to its passages
attempts.py       one window at rising temperatures, until its text is plausible
script.py         the transcript while it grows, in the order of the recording
passage.py        the values that the pipeline gives
"""

from stoop_worker.jobs.pipelines.attempts import TEMPERATURES
from stoop_worker.jobs.pipelines.passage import Passage, Transcription
from stoop_worker.jobs.pipelines.transcription import Windows, transcribe

__all__ = ["TEMPERATURES", "Passage", "Transcription", "Windows", "transcribe"]
