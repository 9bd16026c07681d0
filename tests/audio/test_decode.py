"""Audio of every accepted format, and of hostile files: lying headers, bombs, playlists, other files."""

import contextlib
import io
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoop_worker.audio import AudioLimits, decode, packed_seconds
from stoop_worker.errors import AudioTooLarge, AudioUndecodable
from tests.audio.sounds import encoded, tone

LIMITS = AudioLimits(max_bytes=4 << 20, max_seconds=60)


@pytest.mark.parametrize(
    ("kind", "codec", "rate"),
    [
        ("wav", "pcm_s16le", 16_000),
        ("wav", "pcm_mulaw", 8_000),
        ("aiff", "pcm_s16be", 44_100),
        ("flac", "flac", 48_000),
        ("mp3", "libmp3lame", 44_100),
        ("ogg", "libopus", 48_000),
        ("webm", "libopus", 48_000),
        ("mp4", "aac", 44_100),
        ("adts", "aac", 44_100),
    ],
)
def test_every_format_becomes_mono_at_16_khz(kind: str, codec: str, rate: int) -> None:
    samples = decode(encoded(tone(2.0, rate=rate), kind, codec, rate=rate), LIMITS)
    assert samples.dtype == np.int16 and len(samples) == pytest.approx(32_000, abs=1600)
    spectrum = np.abs(np.fft.rfft(samples[8000:24_000].astype(float)))
    assert int(spectrum.argmax()) == 440


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("wav", "pcm_mulaw"),
        ("flac", "flac"),
        ("mp3", "libmp3lame"),
        ("webm", "libopus"),
        ("mp4", "aac"),
        ("adts", "aac"),
    ],
)
def test_the_length_of_a_file_is_read_from_its_packets_without_decoding(kind: str, codec: str) -> None:
    rate = 48_000 if codec == "libopus" else 16_000
    assert packed_seconds(encoded(tone(20.0, rate=rate), kind, codec, rate=rate), LIMITS) == pytest.approx(20, abs=0.2)


def test_the_packets_of_a_bomb_are_refused_before_any_is_decoded() -> None:
    silence = encoded(np.zeros(70 * 16_000, dtype=np.int16), "flac", "flac")
    with pytest.raises(AudioTooLarge, match="longer than 60 seconds"):
        packed_seconds(silence, LIMITS)
    with pytest.raises(AudioUndecodable):
        packed_seconds(b"This is a text.\n" * 500, LIMITS)


@pytest.mark.parametrize(("kind", "codec"), [("flac", "flac"), ("mp3", "libmp3lame")])
def test_an_error_of_the_check_ends_decoding_at_the_next_packet(kind: str, codec: str) -> None:
    packets = 0

    def check() -> None:
        nonlocal packets
        packets += 1
        if packets == 3:
            raise InterruptedError

    file = encoded(tone(20.0), kind, codec)
    with pytest.raises(InterruptedError):
        decode(file, LIMITS, check)
    assert packets == 3


def test_channels_are_averaged() -> None:
    left = tone(1.0)
    stereo = np.stack((left, np.zeros_like(left)), axis=1).reshape(-1)
    samples = decode(encoded(stereo, layout="stereo"), LIMITS)
    assert np.abs(samples - left / 2).max() <= 1


def test_the_sound_of_a_film_is_found_and_its_pictures_are_left_alone() -> None:
    samples = decode(encoded(tone(1.0), "mp4", "aac", picture=True), LIMITS)
    assert len(samples) == pytest.approx(16_000, abs=1600)


def test_the_header_decides_nothing() -> None:
    written = encoded(tone(1.0))
    at = written.index(b"data") + 4
    lying = written[:at] + struct.pack("<I", 0x7FFF_FFF0) + written[at + 4 :]
    assert len(decode(lying, LIMITS)) == 16_000
    long = encoded(np.zeros(61 * 16_000, dtype=np.int16), "flac", "flac")
    modest = bytearray(long)
    modest[8 + 13 : 8 + 18] = bytes([modest[8 + 13] & 0xF0, 0, 0, 0x3E, 0x80])  # FLAC's total: one second
    assert packed_seconds(bytes(modest), LIMITS) == pytest.approx(61.0, abs=0.1)
    with pytest.raises(AudioTooLarge, match="longer than 60 seconds"):
        decode(bytes(modest), LIMITS)


def test_a_bomb_stops_at_the_limit_of_seconds_and_of_work() -> None:
    silence = encoded(np.zeros(1200 * 16_000, dtype=np.int16), "flac", "flac")
    assert len(silence) < 512 << 10
    with pytest.raises(AudioTooLarge, match="cut it into parts"):
        decode(silence, LIMITS)
    wide = encoded(np.zeros(30 * 8 * 48_000, dtype=np.int16), "flac", "flac", rate=48_000, layout="7.1")
    with pytest.raises(AudioTooLarge, match="too much work"):
        decode(wide, LIMITS)


def test_a_frame_that_lasts_for_minutes_is_not_resampled() -> None:
    few = encoded(np.zeros(65_535, dtype=np.int16), "flac", "flac", rate=100, block=65_535)
    assert len(few) < 16 << 10
    with pytest.raises(AudioUndecodable, match="no audio that can be decoded"):
        decode(few, AudioLimits())


def test_frames_of_a_few_samples_take_no_more_memory_than_long_ones() -> None:
    crumbs = encoded(np.zeros(8 * 16_000, dtype=np.int16), "flac", "flac", block=16)
    tracemalloc.start()
    try:
        samples = decode(crumbs, LIMITS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(samples) == 8 * 16_000 and peak < 4 * samples.nbytes


def test_a_file_over_the_limit_of_bytes_is_not_opened() -> None:
    with pytest.raises(AudioTooLarge, match="has 4194305 bytes: at most 4194304"):
        decode(bytes((4 << 20) + 1), LIMITS)


def _png() -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (64, 64)).save(written, "PNG")
    return written.getvalue()


@pytest.mark.parametrize("other", [b"", b"This is a text.\n" * 500, b"ID3\x04" + bytes(2000), _png(), bytes(100_000)])
def test_a_file_that_is_not_audio_is_refused(other: bytes) -> None:
    with pytest.raises(AudioUndecodable):
        decode(other, LIMITS)


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(AudioUndecodable, match="the file is empty"):
        decode(b"", LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile://{path}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{path}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_a_playlist_opens_no_other_file(text: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(encoded(tone(1.0)))
    with pytest.raises(AudioUndecodable, match="not a file of an accepted format"):
        decode(text.format(path=secret).encode(), LIMITS)


def test_damaged_frames_are_skipped_and_a_truncated_file_keeps_its_beginning() -> None:
    rng = np.random.default_rng(0)
    noise = (3000 * rng.normal(size=10 * 16_000)).astype(np.int16)
    whole = encoded(noise, "mp3", "libmp3lame")
    damaged = bytearray(whole)
    for start in range(5000, len(whole) - 300, 4000):
        damaged[start : start + 300] = bytes(300)
    assert 8 * 16_000 < len(decode(bytes(damaged), LIMITS)) < 10.5 * 16_000
    assert 4 * 16_000 < len(decode(whole[: len(whole) // 2], LIMITS)) < 6 * 16_000


def test_random_damage_raises_nothing_else() -> None:
    rng = np.random.default_rng(1)
    files = [encoded(tone(1.0)), encoded(tone(1.0), "mp3", "libmp3lame"), encoded(tone(1.0), "mp4", "aac")]
    for _ in range(40):
        for file in files:
            damaged = bytearray(file)
            for at in rng.integers(len(file), size=20):
                damaged[at] = rng.integers(256)
            with contextlib.suppress(AudioTooLarge, AudioUndecodable):
                decode(bytes(damaged), LIMITS)
