from stoop_worker.jobs.backoff import Backoff


def test_waits_double_up_to_the_longest_within_their_upper_half() -> None:
    backoff = Backoff(first=1.0, longest=8.0)
    for longest in (1.0, 2.0, 4.0, 8.0, 8.0, 8.0):
        assert longest / 2 <= backoff.next() <= longest


def test_two_backoffs_do_not_wait_alike() -> None:
    assert len({Backoff().next() for _ in range(20)}) > 1
