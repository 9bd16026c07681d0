from pathlib import Path

from benchmarks.engine.photos import LARGE, SMALL, draw_photo, make_photos
from stoop_worker.images import ImageLimits, load


def test_a_photo_has_the_size_of_a_real_one_and_can_be_drawn_again() -> None:
    photo = draw_photo(4, LARGE)
    assert 70_000 < len(photo) < 150_000
    assert photo == draw_photo(4, LARGE)
    assert load(photo, ImageLimits()).pixels.shape == (600, 850, 3)


def test_no_two_are_alike_and_those_that_exist_are_kept(tmp_path: Path) -> None:
    first = make_photos(2, SMALL, tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    more = make_photos(5, SMALL, tmp_path, processes=2)
    assert more[:2] == first
    assert len({load(photo, ImageLimits()).digest for photo in more}) == 5
    assert {path: path.stat().st_mtime_ns for path in made} == made
