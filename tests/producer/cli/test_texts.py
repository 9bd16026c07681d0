"""`stoop embed` and `stoop rerank` on a queue that a test scripts."""

import pytest

from tests.producer.cli.test_cli import Terminal, terminal

__all__ = ["terminal"]


@pytest.mark.parametrize("command", [("embed", "a cat"), ("rerank", "a cat", "a dog")], ids=lambda command: command[0])
@pytest.mark.parametrize("option", [("--temperature", "1"), ("--max-objects", "3"), ("--stream",), ("--draw", "a.png")])
def test_an_option_without_effect_is_refused(
    terminal: Terminal, command: tuple[str, ...], option: tuple[str, ...]
) -> None:
    code, _, aside = terminal.run(*command, *option)
    assert (code, "No such option" in aside) == (2, True)
    assert terminal.transport.submitted == []
