from stoop_schemas.state import TERMINAL, TRANSITIONS, State


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {State.QUEUED}
    while more := {after for before in reached for after in TRANSITIONS[before]} - reached:
        reached |= more
    assert reached == set(State)


def test_what_has_ended_stays_so_but_for_a_redrive() -> None:
    assert {(before, after) for before in TERMINAL for after in TRANSITIONS[before]} == {(State.FAILED, State.QUEUED)}


def test_every_state_that_has_not_ended_can_still_be_cancelled_or_expire() -> None:
    for before in set(State) - TERMINAL:
        assert {State.CANCELLED, State.EXPIRED} <= TRANSITIONS[before]
