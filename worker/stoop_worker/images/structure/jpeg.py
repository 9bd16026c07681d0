"""A JPEG's segments up to its first scan, without metadata, and a bound on its scans."""

import re
from collections.abc import Iterator

from stoop_worker.errors import ImageTooLarge
from stoop_worker.images.structure.jpeg_frame import Frame

__all__ = ["frame_kind", "lean_jpeg"]

_MOST_SCANS = 100  # encoders write about ten, and fewer than seventy with every option

_MOST_SEGMENTS = 5000  # a profile and a panorama's notes take about 800 of 64 KB
_MOST_KEPT = 256  # of those that Pillow reads in Python
_SCANS_OF_LARGEST = 32  # over one component of the largest image: the usual scans of a CMYK file add up to about 24

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_BARE = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})
"""The second bytes of markers without a length."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# among the application segments only JFIF's and Adobe's define the colours; the others and FE are metadata
_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})

# the end of a scan's bits: an FF that is neither an escaped FF nor a restart
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def lean_jpeg(encoded: bytes, most_pixels: int) -> bytes:
    """Return the JPEG without metadata and junk between its segments; raises `ImageTooLarge` if scans are too many."""
    kept, frame, first_scan = [encoded[:2]], None, len(encoded)
    for start, end in _segments(encoded, 2):
        marker = encoded[start + 1]
        if marker in (_SOS, _EOI):
            first_scan = start
            break
        if marker in _FRAMES:
            frame = frame or Frame.read(encoded[start:end])
        if marker not in _METADATA:
            kept.append(encoded[start:end])
    if len(kept) > _MOST_KEPT:
        raise ImageTooLarge(f"the JPEG has {len(kept)} tables before its first scan: at most {_MOST_KEPT}")
    ended = frame is None or frame.ends_with(encoded[first_scan : first_scan + 5])
    if frame is not None and not ended and frame.width * frame.height <= most_pixels:
        _check_scans(encoded, first_scan, frame, most_pixels * _SCANS_OF_LARGEST // 64)
    if sum(map(len, kept)) == first_scan:
        return encoded
    return b"".join((*kept, memoryview(encoded)[first_scan:]))


def frame_kind(encoded: bytes) -> int | None:
    """Return the second byte of the marker that begins the frame; None if no frame comes before the first scan."""
    for start, _ in _segments(encoded, 2):
        marker = encoded[start + 1]
        if marker in _FRAMES:
            return marker
        if marker in (_SOS, _EOI):
            break
    return None


def _segments(encoded: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each segment from `at` on; skips bare markers and bytes between segments."""
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(encoded, at)
        if found is None:
            return
        start = found.start()
        marker = encoded[start + 1]
        if marker in _BARE:
            at = start + 2
            continue
        # a length includes its own two bytes; decoders read a smaller one as 2
        at = start + 2 + (0 if marker == _EOI else max(2, int.from_bytes(encoded[start + 2 : start + 4], "big")))
        yield start, at
    raise ImageTooLarge(f"the JPEG has more than {_MOST_SEGMENTS} segments: save it again without metadata")


def _check_scans(encoded: bytes, first_scan: int, frame: Frame, most_cost: int) -> None:
    scans = encoded.count(b"\xff\xda", first_scan)  # never too few, and quick to count
    if scans <= _MOST_SCANS and scans * frame.cost <= most_cost:
        return
    scans = cost = 0
    for start, end in _segments(encoded, first_scan):
        if encoded[start + 1] == _EOI:
            return
        if encoded[start + 1] == _SOS:
            scans, cost = scans + 1, cost + frame.cost_of(encoded[start:end])
        if scans > _MOST_SCANS:
            raise ImageTooLarge(f"the JPEG has more than {_MOST_SCANS} scans: save it again with fewer")
        if cost > most_cost:
            raise ImageTooLarge(f"the JPEG's {scans} scans and more take too long: save it again without progression")
