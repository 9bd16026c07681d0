"""The reports of the progress of reading weights."""

from structlog.testing import capture_logs

from stoop_worker.engine_process.protocol import Loading
from stoop_worker.engine_process.reading import Reading


def test_progress_is_reported_every_second_and_logged_every_five() -> None:
    now, progress = 0.0, list[Loading]()
    reading = Reading(progress.append, clock=lambda: now)
    with capture_logs() as logs:
        for tick in range(23):  # half a second each
            now = tick / 2
            reading.on_read((tick + 1) << 20, 23 << 20)
    assert [loading.read >> 20 for loading in progress] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]
    assert [(line["megabytes"], line["of"], line["seconds"]) for line in logs] == [(11, 23, 5.0), (21, 23, 10.0)]
    assert reading.read == 23 << 20
