"""CVAT for images 1.1: one XML file, in pixels from the top left corner.

Boxes and points are shapes; a caption or answer is a tag whose attributes hold the text. The labels and their
attributes come first, so that a task can be created from them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from stoop.export.formats.annotated import Annotated
from stoop.export.formats.dataset import Dataset
from stoop.export.formats.xml_text import legal

__all__ = ["write_cvat"]

_TEXTS: Final = {"captions": ("caption", ("text",)), "answers": ("answer", ("question", "text"))}
_SHAPE: Final = 'source="auto" occluded="0"'


def write_cvat(dataset: Dataset, out: Path) -> None:
    """Write the file. It has the names of the images, by which CVAT finds them in its task."""
    count = dataset.gathered.count()
    with out.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n')
        _write_meta(file, dataset, count)
        for position, annotated in enumerate(dataset.annotated()):
            _write_image(file, annotated, position)
            dataset.count(annotated, "boxes", "points", "captions", "answers")
        file.write("</annotations>\n")


def _write_meta(file: TextIO, dataset: Dataset, count: int) -> None:
    file.write(f"  <meta>\n    <task>\n      <size>{count}</size>\n      <mode>annotation</mode>\n      <labels>\n")
    texts = dict(text for kind, text in _TEXTS.items() if kind in dataset.kinds)
    for label in sorted({*dataset.labels("boxes", "points"), *texts}):
        file.write(f"        <label>\n          <name>{_text(label)}</name>\n          <attributes>\n")
        for attribute in texts.get(label, ()):
            file.write(
                f"            <attribute><name>{attribute}</name><mutable>False</mutable><input_type>text</input_type>"
                "<default_value></default_value><values></values></attribute>\n"
            )
        file.write("          </attributes>\n        </label>\n")
    file.write("      </labels>\n    </task>\n  </meta>\n")


def _write_image(file: TextIO, annotated: Annotated, position: int) -> None:
    image = annotated.image
    name = quoteattr(legal(image.name))
    file.write(f'  <image id="{position}" name={name} width="{image.width}" height="{image.height}">\n')
    for line in _shapes(annotated, image.width or 0, image.height or 0):
        file.write(f"    {line}\n")
    for caption in annotated.captions:
        file.write(f"    {_tag('caption', text=caption)}\n")
    for question, answer in annotated.answers:
        file.write(f"    {_tag('answer', question=question, text=answer)}\n")
    file.write("  </image>\n")


def _shapes(annotated: Annotated, width: int, height: int) -> Iterator[str]:
    for label, box in annotated.boxes:
        corners = f'xtl="{box.x_min * width:.2f}" ytl="{box.y_min * height:.2f}" xbr="{box.x_max * width:.2f}"'
        yield f'<box label={_quoted(label)} {_SHAPE} {corners} ybr="{box.y_max * height:.2f}" z_order="0"></box>'
    for label, point in annotated.points:
        place = f"{point.x * width:.2f},{point.y * height:.2f}"
        yield f'<points label={_quoted(label)} {_SHAPE} points="{place}" z_order="0"></points>'


def _tag(label: str, **texts: str) -> str:
    attributes = "".join(f'<attribute name="{name}">{_text(text)}</attribute>' for name, text in texts.items())
    return f'<tag label="{label}" source="auto">{attributes}</tag>'


def _text(text: str) -> str:
    return escape(legal(text))


def _quoted(text: str) -> str:
    return quoteattr(legal(text))
