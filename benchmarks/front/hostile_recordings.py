"""Measures hostile recordings at the front of a worker: how each ends, and the time that it takes.

    python -m benchmarks.front.hostile_recordings

The limits are those of a worker that has no flags. Each file goes the way of a job's recording: its packets are
counted, then it is decoded to windows. `processor` is the time of all threads.
"""

import argparse
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.figures import machine, write_json
from stoop_worker.audio import AudioLimits, Cutting, MelGeometry, packed_seconds, parts
from stoop_worker.errors import AudioTooLarge, AudioUndecodable

__all__ = ["main"]

_LIMITS: Final = AudioLimits()
_PIECE: Final = 100
_CODES: Final = {AudioTooLarge: "audio_too_large", AudioUndecodable: "audio_undecodable"}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=10, help="length of the long silence")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    arguments = parser.parse_args(argv)
    found = {}
    for name, make in _files(arguments.hours).items():
        file = make()
        wall, processor = time.perf_counter(), time.process_time()
        ending = _ending(file)
        seconds = time.perf_counter() - wall, time.process_time() - processor
        found[name] = {"bytes": len(file), "ends as": ending, "wall": seconds[0], "processor": seconds[1]}
        print(
            f"{name:44} {len(file) / 1e6:8.2f} MB  {ending:18} wall {seconds[0]:6.2f} s  processor {seconds[1]:6.2f} s"
        )
    document = {"kind": "hostile-recordings", "machine": machine("cpu"), "files": found}
    write_json(document, arguments.out, "hostile-recordings")
    return document


def _ending(file: bytes) -> str:
    try:
        packed_seconds(file, _LIMITS)
        duration = sum(part.duration for part in parts(file, _LIMITS, MelGeometry(128), Cutting(in_windows=True)))
    except (AudioTooLarge, AudioUndecodable) as error:
        return _CODES[type(error)]
    return f"{duration:.0f} s of audio"


def _files(hours: int) -> Mapping[str, Callable[[], bytes]]:
    from tests.audio.sounds import encoded, tone

    def lying(claimed: int) -> bytes:
        written = encoded(tone(1.0))
        at = written.index(b"data") + 4
        return written[:at] + struct.pack("<I", claimed) + written[at + 4 :]

    def modest() -> bytes:
        """Return silence over the limit, whose header claims one second."""
        written = bytearray(encoded(np.zeros(5 * 3600 * 16_000, dtype=np.int16), "flac", "flac"))
        written[8 + 13 : 8 + 18] = bytes([written[8 + 13] & 0xF0, 0, 0, 0x3E, 0x80])
        return bytes(written)

    def damaged() -> bytes:
        """Return an hour of noise with a hole every 8 KB, which is less than a thread decodes together."""
        noise = (3000 * np.random.default_rng(0).normal(size=_PIECE * 16_000)).astype(np.int16)
        written = bytearray(3600 // _PIECE * encoded(noise, "mp3", "libmp3lame"))
        for start in range(8 << 10, len(written) - 300, 8 << 10):
            written[start : start + 300] = bytes(300)
        return bytes(written)

    silence = np.zeros(_PIECE * 16_000, dtype=np.int16)
    return {
        "WAV of 1 s, whose header claims 2 GB": lambda: lying(0x7FFF_FFF0),
        "WAV of 1 s, whose header claims nothing": lambda: lying(0),
        "FLAC of 5 h, whose header claims 1 s": modest,
        f"AAC, {hours} h of silence": lambda: hours * 3600 // _PIECE * encoded(silence, "adts", "aac"),
        f"MP3, {hours} h of silence": lambda: hours * 3600 // _PIECE * encoded(silence, "mp3", "libmp3lame"),
        "MP3 of 1 h, damaged every 3 s": damaged,
        "FLAC with frames of 11 minutes": lambda: encoded(
            np.zeros(655_350, dtype=np.int16), "flac", "flac", rate=100, block=65_535
        ),
        "a text named .mp3": lambda: b"This is a text.\n" * 500,
        "16 MB of text named .mp3": lambda: b"This is a text.\n" * (1 << 20),
        "16 MB of noise after the start of an MP3": lambda: b"ID3\x04" + np.random.default_rng(1).bytes(16 << 20),
        "16 MB of zeros": lambda: bytes(16 << 20),
        "a playlist": lambda: b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    }


if __name__ == "__main__":
    main()
