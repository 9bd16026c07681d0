import io

import pytest
from PIL import Image

from stoop.draw import COLOURS, draw_output
from stoop.draw.drawing import draw_marks, open_canvas
from stoop.errors import ImageUnreadable
from stoop_schemas.skill import Box, Output, Point


def paper(width: int = 300, height: int = 200) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(written, "PNG")
    return written.getvalue()


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def test_boxes_are_outlined_where_they_lie() -> None:
    drawn = draw_output(paper(), Output(objects=[Box(0.2, 0.4, 0.8, 0.9), Box(0.0, 0.0, 0.1, 0.1)]), "cat")
    assert drawn.size == (300, 200)
    assert drawn.getpixel((60, 140)) == rgb(COLOURS[0])  # left side of the first
    assert drawn.getpixel((240, 140)) == rgb(COLOURS[0])  # right side
    assert drawn.getpixel((150, 180)) == rgb(COLOURS[0])  # bottom
    assert drawn.getpixel((150, 140)) == (255, 255, 255)  # nothing inside
    assert drawn.getpixel((30, 10)) == rgb(COLOURS[1])  # right side of the second


def test_boxes_the_wrong_way_round_or_outside_the_image_are_drawn_too() -> None:
    drawn = draw_output(paper(), Output(objects=[Box(0.8, 0.9, 0.2, 0.4), Box(-0.5, -0.5, 1.5, 1.5)]))
    assert drawn.getpixel((60, 140)) == rgb(COLOURS[0])


def test_points_are_dots() -> None:
    drawn = draw_output(paper(), Output(points=[Point(0.5, 0.5)]), "eye")
    assert drawn.getpixel((150, 100)) == rgb(COLOURS[0])
    assert drawn.getpixel((20, 100)) == (255, 255, 255)


@pytest.mark.parametrize("output", [Output(answer="a cat " * 40), Output(caption="a cat " * 40)])
def test_text_is_written_below_the_image(output: Output) -> None:
    drawn = draw_output(paper(), output)
    assert drawn.width == 300
    assert drawn.height > 240
    above, below = drawn.crop((0, 0, 300, 200)), drawn.crop((0, 200, 300, drawn.height))
    assert above.convert("L").getextrema() == (255, 255)
    assert below.convert("L").getextrema()[0] < 64


def test_a_file_that_is_not_an_image_cannot_be_drawn_on() -> None:
    with pytest.raises(ImageUnreadable):
        draw_output(b"nothing", Output(answer="x"))


def test_several_labels_have_a_colour_each() -> None:
    canvas, _ = open_canvas(paper())
    boxes = [("cat", Box(0.1, 0.6, 0.2, 0.9)), ("dog", Box(0.4, 0.6, 0.5, 0.9)), ("cat", Box(0.7, 0.6, 0.8, 0.9))]
    draw_marks(canvas, boxes, [])
    colours = [canvas.getpixel((round(box.x_max * 300), 150)) for _, box in boxes]
    assert colours == [rgb(COLOURS[0]), rgb(COLOURS[1]), rgb(COLOURS[0])]


@pytest.mark.parametrize("text", ["", "\x00\x1b[31m\n\u2028", "x" * 100_000, "日本語 🦶", "</script>"])
def test_any_text_can_be_drawn(text: str) -> None:
    drawn = draw_output(paper(), Output(objects=[Box(0.1, 0.1, 0.9, 0.9)], caption=text), label=text)
    assert drawn.width == 300
    assert drawn.height < 6000


def test_text_has_room_below_a_tiny_image() -> None:
    drawn = draw_output(paper(2, 2), Output(caption="a cat on a mat"))
    assert drawn.width >= 200
    assert drawn.convert("L").getextrema()[0] < 64


def test_a_gaze_is_a_line_from_the_eye_to_a_dot() -> None:
    drawn = draw_output(paper(), Output(gaze=Point(0.9, 0.5)), refs=[(0.1, 0.5)])
    row = [drawn.getpixel((x, 100)) for x in range(300)]
    assert set(row[32:250]) == {rgb(COLOURS[0])} and set(row[:28]) == {(255, 255, 255)}
    nothing = draw_output(paper(), Output(gaze=None), refs=[(0.1, 0.5)])
    assert nothing.tobytes() == draw_output(paper(), Output(points=[])).tobytes()
