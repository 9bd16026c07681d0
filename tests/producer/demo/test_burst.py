from producer.demo.burst import plan_burst
from producer.demo.pictures import draw_pictures


def test_the_burst_has_every_skill_in_every_way() -> None:
    pictures = draw_pictures(8, seed=7)
    errands = plan_burst(pictures)
    assert 24 <= len(errands) <= 32
    assert {errand.skill for errand in errands} == {"query", "caption", "detect", "point"}
    assert {errand.fields["length"] for errand in errands if errand.skill == "caption"} == {"short", "normal"}
    assert sum(bool(errand.fields.get("reasoning")) for errand in errands) == 1
    assert [errand.skill for errand in errands if errand.picture is None] == ["query"]
    assert max(sum(errand.picture is picture for errand in errands) for picture in pictures) >= 3
    assert all(errand.truth for errand in errands if errand.skill != "caption")
