"""`stoop dead`: look at dead letters, send them back to their lanes, or delete them."""

import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from stoop.cli.operator_options import AsJson, Partition, operate
from stoop.cli.render_queue import letter_facts, print_json, print_letter, print_letters
from stoop.errors import NotFound
from stoop.operator import DeadLetter, Operator, Redriven
from stoop.terminal import one_line

__all__ = ["dead"]

_PAGE = 100
_LETTER = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")
_PARTITION = f"{__name__}.partition"

dead = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

_Named = Annotated[list[str] | None, typer.Argument(help="Letters, or ids of their jobs; none with --all.")]
_All = Annotated[bool, typer.Option("--all", help="All letters that exist when the command starts.")]
_Code = Annotated[str | None, typer.Option(help="With --all: only those with this failure code.")]


@dead.callback()
def _choose_partition(context: typer.Context, partition: Partition = 0) -> None:
    """Dead letters: jobs that will not be retried."""
    context.meta[_PARTITION] = partition


@dead.command("list")
def list_letters(
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of letters.")] = 20,
    before: Annotated[str | None, typer.Option(help="Only letters older than this one.")] = None,
    json: AsJson = False,
) -> None:
    """List dead letters, newest first; the next page begins --before the last one shown."""
    partition = context.meta[_PARTITION]
    if before is not None and not _LETTER.fullmatch(before):
        raise typer.BadParameter(f"--before takes a letter such as 1795000000000-0, not {before!r}")
    letters = operate(context, lambda queue: queue.letters(count, before=before, partition=partition), as_json=json)
    if json:
        print_json([letter_facts(letter) for letter in letters])
    else:
        print_letters(letters, time.time())


@dead.command("show")
def show_letter(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(help="The letter, or the id of its job.")],
    json: AsJson = False,
) -> None:
    """Show one dead letter in full: its failure, and the job as it was submitted."""
    found = operate(context, lambda queue: _find(queue, letter, context.meta[_PARTITION]), as_json=json)
    if json:
        print_json(letter_facts(found))
    else:
        print_letter(found)


@dead.command("redrive")
def redrive_letters(
    context: typer.Context,
    letters: _Named = None,
    everything: _All = False,
    code: _Code = None,
    json: AsJson = False,
) -> None:
    """Send dead letters back to their lanes: the same job id, with attempts counted from 0."""
    partition = _checked_choice(context, letters, everything, code)

    async def redrive(queue: Operator) -> Counter[str]:
        verdicts: Counter[str] = Counter()
        async for page in _chosen(queue, letters, code, partition):
            verdicts.update(await queue.redrive(page, partition))
        return verdicts

    verdicts = operate(context, redrive, as_json=json)
    if json:
        print_json({verdict.value: verdicts[verdict] for verdict in Redriven})
    else:
        left = verdicts[Redriven.LIVES]
        lives = f"; {left} skipped, because their jobs were submitted again or have completed" if left else ""
        typer.echo(f"{verdicts[Redriven.YES]} sent back to their lanes{lives}")


@dead.command("purge")
def purge_letters(
    context: typer.Context,
    letters: _Named = None,
    everything: _All = False,
    code: _Code = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: AsJson = False,
) -> None:
    """Delete dead letters permanently."""
    partition = _checked_choice(context, letters, everything, code)
    if everything and not yes:
        if json:
            raise typer.BadParameter("--all with --json needs --yes")
        typer.confirm("Delete all these dead letters permanently?", abort=True)

    async def purge(queue: Operator) -> int:
        return sum([await queue.purge(page, partition) async for page in _chosen(queue, letters, code, partition)])

    deleted = operate(context, purge, as_json=json)
    if json:
        print_json({"purged": deleted})
    else:
        typer.echo(f"{deleted} deleted")


def _checked_choice(context: typer.Context, letters: list[str] | None, everything: bool, code: str | None) -> int:
    if bool(letters) == everything:
        raise typer.BadParameter("name letters, or give --all")
    if code and not everything:
        raise typer.BadParameter("--code needs --all")
    return int(context.meta[_PARTITION])


async def _find(queue: Operator, name: str, partition: int) -> DeadLetter:
    found = await queue.find(name, partition)
    if found is None:
        raise NotFound(f"there is no dead letter {one_line(name)}: `stoop dead list` lists the existing ones")
    return found


async def _chosen(
    queue: Operator, named: list[str] | None, code: str | None, partition: int
) -> AsyncIterator[list[DeadLetter]]:
    """Yield the chosen letters, a page at a time: those named, or all that exist now."""
    if named:
        found = [await _find(queue, name, partition) for name in named]
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]
        return
    before = None
    while page := await queue.letters(_PAGE, before=before, partition=partition):
        before = page[-1].letter
        yield [letter for letter in page if code is None or letter.code == code]
