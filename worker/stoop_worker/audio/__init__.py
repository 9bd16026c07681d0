"""Turns encoded audio into the features that a speech model takes: pure functions over numpy and PyAV, without torch.

decode.py     decodes bytes to mono samples at 16 kHz within the worker's limits
packets.py    packets of a file to blocks of samples, in other threads
mp3.py        a batch of MP3 packets to blocks, by a call for each block
resample.py   frames of any form to mono samples of one rate
ahead.py      runs a stage in threads of its own, some pieces ahead of the next stage
mel.py        log-mel features, and one window of them
voice.py      voice activity: the parts that may contain speech
span.py       parts of a recording, cut where it is quiet
recording.py  a decoded file as features, whole or window by window
"""

from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, Check, decode, packed_seconds
from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND, Mel, MelGeometry, log_mel
from stoop_worker.audio.recording import WHOLE, Cutting, Recording, parts, record, recording_bytes
from stoop_worker.audio.span import Span

__all__ = [
    "FRAMES",
    "FRAMES_PER_SECOND",
    "SAMPLE_RATE",
    "WHOLE",
    "AudioLimits",
    "Check",
    "Cutting",
    "Mel",
    "MelGeometry",
    "Recording",
    "Span",
    "decode",
    "log_mel",
    "packed_seconds",
    "parts",
    "record",
    "recording_bytes",
]
