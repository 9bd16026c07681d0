from stoop.demo.burst import plan_burst
from stoop.demo.pictures import draw_pictures


def test_the_burst_has_every_skill_in_every_way() -> None:
    pictures = draw_pictures(8, seed=7)
    jobs = plan_burst(pictures)
    assert 24 <= len(jobs) <= 32
    assert {job.skill for job in jobs} == {"query", "caption", "detect", "point"}
    assert {job.fields["length"] for job in jobs if job.skill == "caption"} == {"short", "normal"}
    assert sum(bool(job.fields.get("reasoning")) for job in jobs) == 1
    assert [job.skill for job in jobs if job.picture is None] == ["query"]
    assert max(sum(job.picture is picture for job in jobs) for picture in pictures) >= 3
    assert all(job.truth for job in jobs if job.skill != "caption")
