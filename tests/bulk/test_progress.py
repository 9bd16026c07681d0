import io

from rich.console import Console

from stoop.bulk.progress import Counts, Plain, Terminal, display_on, spell_seconds


def spoken(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_counts_show_progress_speed_and_time_left() -> None:
    counts = Counts(done=900, failed=100, skipped=500, tokens=9000, total=2500)
    counts.began -= 10
    text = str(counts)
    assert text.startswith("1,500 of 2,500 (60%), 100 failed, 500 done before · 100.0 img/s, 900 tok/s, 10 s left")


def test_an_unknown_total_is_not_shown() -> None:
    assert "of" not in str(Counts(done=3)) and "left" not in str(Counts(done=3))
    assert str(Counts(total=0)).startswith("0 of 0")


def test_rates_are_of_late() -> None:
    counts = Counts()
    counts.began -= 1000
    counts.look()
    counts.done = 50
    counts.look()
    assert counts.rates[0] > 50 / 30


def test_a_log_gets_a_line_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=60)
    plain = display_on(console, every=3600.0)
    assert isinstance(plain, Plain)
    for _ in range(3):
        plain.show(Counts(total=5))
        plain.note("the queue is [red]full[/red]\x1b[2J; going on in 1 s, and this line is longer than the console")
    plain.show(Counts(done=5, total=5))
    plain.close()
    plain.close()
    *lines, last = spoken(console).splitlines()
    assert last.startswith("5 of 5 (100%)"), "the last line shows the final count"
    assert lines == [
        "0 of 5 (0%), 0 failed · 0.0 img/s, 0 tok/s",
        "the queue is [red]full[/red]␛[2J; going on in 1 s, and this line is longer than the console",
    ]


def test_a_terminal_gets_a_bar_and_is_left_as_it_was() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    bar = display_on(console, every=10.0)
    assert isinstance(bar, Terminal)
    bar.show(Counts(done=2, total=4))
    bar.note("waiting")
    bar.close()
    bar.close()
    assert "2 of 4 (50%)" in spoken(console)
    assert "waiting" in spoken(console)
    assert spoken(console).rindex("\x1b[?25h") > spoken(console).rindex("\x1b[?25l")


def test_times_are_spelt_as_people_do() -> None:
    assert [spell_seconds(seconds) for seconds in (0.4, 61, 3 * 3600 + 300)] == ["0 s", "1 min 01 s", "3 h 05 min"]
