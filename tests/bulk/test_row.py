from pathlib import Path

import msgspec

from stoop.bulk.row import Row, identified
from stoop.client.build_job import build_job
from stoop_schemas import names

JOB = build_job("caption", image="s3://photos/a.jpg")
ROW = Row("1")


def test_a_job_has_the_same_id_whenever_the_run_is_resumed_and_no_other_job_has_it() -> None:
    other = msgspec.structs.replace(JOB, length="long")
    again = msgspec.structs.replace(JOB, id=names.new_id())
    assert identified(JOB, ROW, "run", 0) == identified(again, ROW, "run", 0)
    ids = {
        identified(job, row, run, tries).id
        for job in (JOB, other)
        for row in (ROW, Row("2"))
        for run in ("run", "another")
        for tries in (0, 1)
    }
    assert len(ids) == 16
    assert all(len(job_id) == len(names.new_id()) and names.partition(job_id) == 0 for job_id in ids)


def test_a_row_shows_its_image_but_no_bytes() -> None:
    assert Row("1", image="s3://photos/a.jpg").shown_image == "s3://photos/a.jpg"
    assert Row("1", image=Path("a.jpg")).shown_image == "a.jpg"
    assert Row("1", image=b"jpeg").shown_image is None
    assert Row("1", image="data:image/png;base64,AAAA").shown_image is None
    assert Row("1", image=b"jpeg").light.image is None


def test_a_resumed_run_finds_its_jobs_with_or_without_stored_outputs() -> None:
    stored = msgspec.structs.replace(JOB, store_output=True)
    assert identified(stored, ROW, "run", 0).id == identified(JOB, ROW, "run", 0).id
