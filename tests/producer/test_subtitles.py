"""A transcript as subtitles."""

import msgspec

from stoop.subtitles import FORMATS, cue, write_transcript
from stoop_schemas.transcript import Transcript, TranscriptSegment


def segment(start: float, end: float, text: str) -> TranscriptSegment:
    return TranscriptSegment(0, 0, start, end, text, [1], 0.0, -0.5, 1.0, 0.0)


TALK = Transcript(
    "Good morning. a --> b",
    "en",
    3700.0,
    [segment(0.0, 1.0605, " Good morning."), segment(3661.5, 3700.0, " a --> b\n\nc")],
)


def test_srt_has_numbers_commas_and_no_arrow_or_empty_line_in_a_text() -> None:
    assert write_transcript(TALK, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,060\nGood morning.\n\n2\n01:01:01,500 --> 01:01:40,000\na -> b c\n\n"
    )


def test_vtt_has_a_heading_and_points() -> None:
    assert write_transcript(TALK, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.060\nGood morning.\n\n01:01:01.500 --> 01:01:40.000\na -> b c\n\n"
    )


def test_no_text_becomes_a_tag_of_vtt() -> None:
    talk = Transcript("", "en", 1.0, [segment(0.0, 1.0, " AT&T <b>")])
    assert write_transcript(talk, "vtt").endswith("\nAT&amp;T &lt;b>\n\n")
    assert write_transcript(talk, "srt").endswith("\nAT&T <b>\n\n")


def test_text_and_json_are_whole() -> None:
    assert write_transcript(TALK, "txt") == "Good morning. a --> b\n"
    assert msgspec.json.decode(write_transcript(TALK, "json"), type=Transcript) == TALK


def test_a_line_for_people_has_short_times() -> None:
    assert [cue(each) for each in TALK.segments] == [
        "[00:00.000 --> 00:01.060] Good morning.\n",
        "[01:01:01.500 --> 01:01:40.000] a -> b c\n",
    ]


def test_a_recording_without_words_is_written_too() -> None:
    written = {kind: write_transcript(Transcript("", "", 1.0, []), kind) for kind in FORMATS}
    assert (written["txt"], written["srt"], written["vtt"]) == ("\n", "", "WEBVTT\n\n")
    assert msgspec.json.decode(written["json"])["segments"] == []
