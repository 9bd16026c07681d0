import io

from PIL import Image

from stoop.demo.pictures import draw_pictures


def test_the_same_seed_draws_the_same_pictures() -> None:
    assert draw_pictures(3, seed=1) == draw_pictures(3, seed=1)
    assert draw_pictures(3, seed=1) != draw_pictures(3, seed=2)


def test_shapes_are_drawn_inside_their_boxes() -> None:
    for picture in draw_pictures(8, seed=5):
        with Image.open(io.BytesIO(picture.encoded)) as opened:
            for shape in picture.shapes:
                left, top, right, bottom = shape.box
                assert 0 <= left < right <= opened.width and 0 <= top < bottom <= opened.height
                red, green, blue = opened.getpixel((int((left + right) / 2), int((top + bottom) / 2)))
                strongest = {"red": red > max(green, blue), "green": green > max(red, blue), "blue": blue > red}
                assert strongest.get(shape.colour, True)
        assert sum(picture.count(name) for name in {shape.name for shape in picture.shapes}) == len(picture.shapes)
