"""Turns encoded audio into the features that a speech model takes: pure functions over numpy and PyAV, without torch.

decode.py     decodes bytes to mono samples at 16 kHz within the worker's limits
mel.py        log-mel features, and one window of them
recording.py  a decoded file as features, cut into windows
"""

from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, claimed_seconds, decode
from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND, Mel, MelGeometry, log_mel
from stoop_worker.audio.recording import Recording, record, recording_bytes

__all__ = [
    "FRAMES",
    "FRAMES_PER_SECOND",
    "SAMPLE_RATE",
    "AudioLimits",
    "Mel",
    "MelGeometry",
    "Recording",
    "claimed_seconds",
    "decode",
    "log_mel",
    "record",
    "recording_bytes",
]
