"""The skills as commands: arguments, one client call, one render."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stoop.cli import render
from stoop.cli.exit_codes import exit_on_error
from stoop.cli.result import await_answer
from stoop.cli.skill_options import SkillOptions, with_options
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop.skill_argument import known_skill
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import CaptionLength

__all__ = ["caption", "detect", "gaze", "point", "query", "run"]

_DRAWN = (".png", ".jpg", ".jpeg", ".webp")

_Image = Annotated[str, typer.Argument(help="An image file, or an s3://, https:// or data: address.")]
_Object = Annotated[str, typer.Argument(help="The object to look for, such as 'red car'.")]


@with_options
def query(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="An image file or address; omit it with --no-image.")],
    question: Annotated[str | None, typer.Argument(help="The question.")] = None,
    no_image: Annotated[bool, typer.Option("--no-image", help="Ask a question on text alone.")] = False,
    reasoning: Annotated[
        bool | None,
        typer.Option("--reasoning/--no-reasoning", help="Let the model think first, or not."),
    ] = None,
    *,
    options: SkillOptions,
) -> None:
    """Answer a question about an image.

    For example: stoop query photo.jpg "How many people are there?" --stream
    """
    if no_image and question is not None:
        raise typer.BadParameter("--no-image takes a question and no image")
    if not no_image and question is None:
        raise typer.BadParameter("give an image and a question, or --no-image and a question")
    asked, about = (image, None) if no_image else (question, image)
    _run(context, options, "query", about, question=asked, reasoning=reasoning)


@with_options
def caption(
    context: typer.Context,
    image: _Image,
    length: Annotated[CaptionLength, typer.Option(help="Length of the caption.")] = CaptionLength.NORMAL,
    *,
    options: SkillOptions,
) -> None:
    """Describe an image.

    For example: stoop caption s3://photos/cat.jpg --length short
    """
    _run(context, options, "caption", image, length=length)


@with_options
def detect(context: typer.Context, image: _Image, object: _Object, *, options: SkillOptions) -> None:
    """Find every instance of an object in an image, as boxes.

    For example: stoop detect photo.jpg "red car" --draw cars.png
    """
    _run(context, options, "detect", image, object=object)


@with_options
def point(context: typer.Context, image: _Image, object: _Object, *, options: SkillOptions) -> None:
    """Point at every instance of an object in an image.

    For example: stoop point photo.jpg "door handle" --json
    """
    _run(context, options, "point", image, object=object)


@with_options
def gaze(
    context: typer.Context,
    image: _Image,
    eye: Annotated[tuple[float, float], typer.Argument(metavar="X Y", help="The person's eye, from 0 to 1.")],
    *,
    options: SkillOptions,
) -> None:
    """Find the place in an image that a person looks at.

    For example: stoop gaze photo.jpg 0.42 0.31 --draw gaze.png
    """
    _run(context, options, "gaze", image, spatial_refs=[eye])


@with_options
def run(
    context: typer.Context,
    skill: Annotated[str, typer.Argument(parser=known_skill, metavar="SKILL", help="The skill's name.")],
    image: Annotated[str | None, typer.Argument(help="An image file or address, if the skill takes one.")] = None,
    field: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A field of the skill.")] = None,
    *,
    options: SkillOptions,
) -> None:
    """Run any skill by name, including one from another package.

    For example: stoop run detect photo.jpg --field object="red car"
    """
    fields = dict(each.split("=", 1) for each in field or () if "=" in each)
    if len(fields) != len(field or ()):
        raise typer.BadParameter("--field takes NAME=VALUE, each name once")
    _run(context, options, skill, image, **fields)


def _run(context: typer.Context, options: SkillOptions, skill: str, image: str | None, **fields: Any) -> None:
    _check(options, image)
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=options.json):
        config = ProducerConfig().replace(lane=options.lane, job_model=options.model, timeout_seconds=options.timeout)
        with connect(config) as client:
            job = client.prepare(skill, image, settings=options.settings, stream=options.stream, **fields)
            job_id = client.submit(job)
            if options.no_wait:
                render.print_submitted(job_id, as_json=options.json)
                return
            result = await_answer(client, job_id, stream=options.stream, as_json=options.json)
            if options.draw and image is not None:
                # the answer is printed already, so an error is reported beside it
                with exit_on_error(as_json=False):
                    _draw(client, options.draw, image, result, job)


def _check(options: SkillOptions, image: str | None) -> None:
    if options.stream and options.json:
        raise typer.BadParameter("choose --stream or --json")
    if options.no_wait and (options.stream or options.draw):
        raise typer.BadParameter("--no-wait cannot be combined with --stream or --draw")
    if options.draw and image is None:
        raise typer.BadParameter("--draw needs an image")
    if options.draw and options.draw.suffix.lower() not in _DRAWN:
        raise typer.BadParameter(f"--draw writes {', '.join(_DRAWN)} files")


def _draw(client: Client, to: Path, image: str, result: Result, job: Job) -> None:
    from stoop.draw import draw_output

    assert result.output is not None, "a completed job has an output"
    drawn = draw_output(client.read_image(image), result.output, job.object or "", job.spatial_refs)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        drawn.save(to)
    except OSError as error:
        raise ConfigError(f"cannot write {to}: {error}") from error
