"""MP3 and FLAC files, which several threads decode in batches: the samples are those of one decoder."""

import io
from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt
import pytest

from stoop_worker.audio import AudioLimits, decode, packets
from stoop_worker.audio.mp3 import decoded_together
from tests.audio.sounds import encoded

RATE = 16_000


def of_one_decoder(file: bytes) -> npt.NDArray[np.int16]:
    """Decode packet by packet; all of the file has one rate."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    frames: list[av.AudioFrame | None] = []
    with av.open(io.BytesIO(file)) as container:
        for packet in container.demux(audio=0):
            try:
                frames += packet.decode()
            except av.FFmpegError:
                continue
    samples = []
    for frame in [*frames, None]:
        if frame is not None:
            frame.pts = None
        samples += [each.to_ndarray()[0] for each in resampler.resample(frame)]
    return np.concatenate(samples)


def sound(seconds: float, rate: int = RATE, channels: int = 1) -> npt.NDArray[np.int16]:
    """Return chirps, pauses and noise, interleaved."""
    time = np.arange(int(seconds * rate)) / rate
    chirp = 8000 * np.sin(800 * time + 20 * np.sin(5 * time)) * (np.sin(8 * time) > -0.5)
    noise = np.random.default_rng(0).normal(scale=300, size=(len(time), channels))
    return (chirp[:, None] + noise).astype(np.int16).ravel()


def packets_of(file: bytes) -> "list[av.Packet[av.AudioStream]]":
    with av.open(io.BytesIO(file)) as container:
        return list(container.demux(container.streams.audio[0]))


@pytest.fixture(scope="module")
def file() -> bytes:
    """Return 110 seconds in 3,057 packets, which share their bytes: four batches."""
    return encoded(sound(110), "mp3", "libmp3lame", rate=RATE)


def test_a_file_of_many_packets_has_the_samples_of_one_decoder(file: bytes) -> None:
    assert np.array_equal(decode(file, AudioLimits()), of_one_decoder(file))


def test_only_the_ends_of_a_whole_file_are_decoded_packet_by_packet(
    file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    real = packets._one_by_one
    monkeypatch.setattr(packets, "_one_by_one", lambda *batch: batches.append(len(batch[-1])) or real(*batch))
    decode(file, AudioLimits())
    assert len(batches) == 2  # the encoder's padding is cut off there


@pytest.mark.parametrize(
    ("rate", "layout", "kind"),
    [
        (8_000, "mono", "mp3"),
        (22_050, "stereo", "mp3"),
        (32_000, "mono", "mp3"),
        (44_100, "stereo", "mp3"),
        (48_000, "stereo", "mp3"),
        (44_100, "stereo", "matroska"),
    ],
)
def test_every_form_of_mp3_has_the_samples_of_one_decoder(
    rate: int, layout: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packets._BATCHES, "mp3float", (100, 48))
    file = encoded(sound(12, rate, 2 if layout == "stereo" else 1), kind, "libmp3lame", rate=rate, layout=layout)
    assert np.array_equal(decode(file, AudioLimits()), of_one_decoder(file))


def test_a_damaged_file_has_the_samples_of_one_decoder(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packets._BATCHES, "mp3float", (100, 48))
    damaged = bytearray(file)
    for start in range(5000, len(damaged) - 300, len(damaged) // 23):
        damaged[start : start + 300] = bytes(300)
    assert np.array_equal(decode(bytes(damaged), AudioLimits()), of_one_decoder(bytes(damaged)))


def test_files_that_follow_each_other_have_the_samples_of_one_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packets._BATCHES, "mp3float", (100, 48))
    joined = encoded(sound(5), "mp3", "libmp3lame", rate=RATE) + encoded(sound(5), "mp3", "libmp3lame", rate=RATE)
    joined += encoded(sound(5, 24_000, 2), "mp3", "libmp3lame", rate=24_000, layout="stereo")
    found = decode(joined, AudioLimits())
    monkeypatch.delitem(packets._BATCHES, "mp3float")  # so that packets are decoded one after another
    assert len(found) > 14 * RATE and np.array_equal(found, decode(joined, AudioLimits()))


@pytest.mark.parametrize(("rate", "layout"), [(16_000, "mono"), (44_100, "stereo"), (48_000, "7.1")])
def test_every_form_of_flac_has_the_samples_of_one_decoder(
    rate: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packets._BATCHES, "flac", (10, 0))
    channels = {"mono": 1, "stereo": 2, "7.1": 8}[layout]
    file = encoded(sound(6, rate, channels), "flac", "flac", rate=rate, layout=layout)
    assert np.array_equal(decode(file, AudioLimits()), of_one_decoder(file))
    damaged = bytearray(file)
    for start in range(len(file) // 5, len(file) - 100, len(file) // 5):
        damaged[start : start + 50] = bytes(50)
    found = of_one_decoder(bytes(damaged))
    assert len(found) < 6 * RATE and np.array_equal(decode(bytes(damaged), AudioLimits()), found)


def test_packets_that_hold_more_than_usual_are_decoded_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "_READY", 1 << 18)
    file = encoded(sound(60), "flac", "flac", block=16_384)
    with av.open(io.BytesIO(file)) as container:
        header = container.streams.audio[0].codec_context.extradata
    ready, rest = packets._of_batch("flac", header, [], packets_of(file))
    assert 1 << 18 <= sum(block.samples for block in ready) <= 1 << 19
    assert sum(block.samples for block in [*ready, *rest]) == 60 * RATE


def test_packets_that_do_not_give_all_of_their_samples_are_not_decoded_together(file: bytes) -> None:
    whole = packets_of(file)
    before, some = whole[100:148], whole[148:200]
    blocks = decoded_together(before, some)
    assert blocks is not None and sum(block.samples for block in blocks) == 52 * 576
    assert decoded_together([], whole[:50]) is None  # the encoder's delay
    assert decoded_together(whole[-60:-30], whole[-30:]) is None  # the padding of the last packet
    damaged: av.Packet[av.AudioStream] = av.Packet(bytes(some[5].size))
    assert decoded_together(before, [*some[:5], damaged, *some[6:]]) is None
    header = next(packet for packet in packets_of(file + file)[3000:] if b"Info" in bytes(packet))
    assert decoded_together([header, *before[1:]], some) is None


@pytest.mark.parametrize("text", [b"#EXTM3U\nfile:///etc/hostname\n", b"ffconcat version 1.0\nfile '/etc/hostname'\n"])
def test_packets_that_hold_another_format_are_not_opened_as_it(text: bytes) -> None:
    packet: av.Packet[av.AudioStream] = av.Packet(text)
    packet.time_base = Fraction(1, RATE)
    assert decoded_together([], [packet] * 60) is None


def test_packets_longer_than_mp3_has_are_not_copied(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoop_worker.audio.mp3._decoded", lambda *_: pytest.fail("the packets are decoded together"))
    long: av.Packet[av.AudioStream] = av.Packet(bytes(packets_of(file)[100]) + bytes(1 << 20))
    assert decoded_together([], [long] * 50) is None
