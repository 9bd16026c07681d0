"""Voice activity: the parts of a recording that may contain speech, by WebRTC's detector.

For each 30 ms the detector compares the energy of six bands with the background that it has learnt. The limits are
those that users of other transcribers know: pauses shorter than 2 s stay, and 0.4 s around speech.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.decode import SAMPLE_RATE, Check, go_on
from stoop_worker.audio.mel import FRAMES_PER_SECOND
from stoop_worker.audio.span import Span

__all__ = ["voiced"]

_BLOCK: Final = SAMPLE_RATE * 30 // 1000
"""Samples of a block, the longest that the detector takes."""

_BLOCK_FRAMES: Final = 3
_STRICTNESS: Final = 2
"""From 0, which keeps most, to 3."""

_SHORTEST_SPEECH: Final = FRAMES_PER_SECOND // 4
_SHORTEST_PAUSE: Final = 2 * FRAMES_PER_SECOND
_MARGIN: Final = 4 * FRAMES_PER_SECOND // 10
_BLOCKS_A_CHECK: Final = 1000


def voiced(samples: npt.NDArray[np.int16], check: Check = go_on) -> tuple[Span, ...]:
    """Return the spans of mono samples at 16 kHz in which there may be speech, with a margin around it."""
    blocks = np.concatenate(([False], _blocks(samples, check), [False]))
    edges = np.flatnonzero(blocks[1:] != blocks[:-1]) * _BLOCK_FRAMES
    spans = [Span(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
    joined = _joined(spans, _MARGIN)
    spoken = [span for span in joined if span.stop - span.start >= _SHORTEST_SPEECH]
    count = len(samples) * FRAMES_PER_SECOND // SAMPLE_RATE
    return tuple(
        Span(max(0, span.start - _MARGIN), min(count, span.stop + _MARGIN)) for span in _joined(spoken, _SHORTEST_PAUSE)
    )


def _blocks(samples: npt.NDArray[np.int16], check: Check) -> npt.NDArray[np.bool_]:
    """Return for each block whether it may be speech; a rest that is shorter than a block is filled up with silence."""
    import webrtcvad

    detector = webrtcvad.Vad(_STRICTNESS)
    count = -(-len(samples) // _BLOCK)
    found = np.zeros(count, dtype=np.bool_)
    for number in range(count):
        if number % _BLOCKS_A_CHECK == 0:
            check()
        block = samples[number * _BLOCK : (number + 1) * _BLOCK].tobytes()
        found[number] = detector.is_speech(block.ljust(2 * _BLOCK, b"\0"), SAMPLE_RATE)
    return found


def _joined(spans: list[Span], pause: int) -> list[Span]:
    """Join spans with less than `pause` frames between them."""
    found: list[Span] = []
    for span in spans:
        if found and span.start - found[-1].stop < pause:
            found[-1] = Span(found[-1].start, span.stop)
        else:
            found.append(span)
    return found
