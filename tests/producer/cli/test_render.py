import pytest

from stoop.cli.render import print_error, print_result, print_stream
from stoop.errors import ImageUnreadable
from stoop.short_answer import short_answer
from stoop_schemas.event import DeltaEvent, Event, FinishedEvent, ReasoningEvent
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Reasoning
from stoop_schemas.state import State

TRICKY = [
    "a :cat: b",
    "[red]not red[/red] [/]",
    "it ends in \\",
    "C:\\[dim]",
    "a\tb\n  c",
    "https://example.org/" + "x" * 300,
]


def completed(output: Output) -> Result:
    return Result(id="a", status=State.COMPLETED, output=output)


@pytest.mark.parametrize("text", TRICKY)
def test_an_answer_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(completed(Output(answer=text, reasoning=Reasoning(text, []))), as_json=False)
    assert capsys.readouterr().out == f"{text}\n\n{text}\n"


@pytest.mark.parametrize("text", TRICKY)
def test_a_stream_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = [ReasoningEvent(id="a", seq=0, text=text)]
    events += [DeltaEvent(id="a", seq=seq, text=piece) for seq, piece in enumerate(text, start=1)]
    print_stream([*events, FinishedEvent(id="a", seq=len(events), result=completed(Output(answer=text)))])
    assert capsys.readouterr().out == f"{text}\n\n{text}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("a\r\x08\x00\x7f", "a␍␈␀␡"),
        ("\x9b2J", r"\x9b2J"),
        ("user\u202egpj.exe", r"user\u202egpj.exe"),
        ("two\nlines\tand é 猫 👋", "two\nlines\tand é 猫 👋"),
    ],
)
def test_no_text_commands_the_terminal(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(completed(Output(caption=text)), as_json=False)
    print_stream([DeltaEvent(id="a", seq=0, text=text)])
    print_error(ImageUnreadable(text), exit_code=2, as_json=False)
    captured = capsys.readouterr()
    assert captured.out == f"{shown}\n{shown}\n"
    assert captured.err.endswith(f"error: {shown}\n")
    assert "\x1b" not in short_answer(completed(Output(caption=text)))
