import msgspec
import pytest

from stoop_schemas import event as events
from stoop_schemas.codec import unpack_event
from stoop_schemas.event import Event, TerminalEvent
from stoop_schemas.failure import Rejected
from stoop_schemas.state import TERMINAL


def test_every_terminal_state_has_its_last_event() -> None:
    tags = {kind.__struct_config__.tag for kind in TerminalEvent.__args__}
    assert tags == {"finished", "failed", "cancelled", "expired"}
    assert len(tags) == len(TERMINAL)
    assert set(TerminalEvent.__args__) < set(Event.__args__)


@pytest.mark.parametrize("change", [{"seq": -1}, {"seq": "0"}, {"attempt": -1}, {"type": None}, {"v": 2}, {"id": None}])
def test_a_wrong_field_is_refused(change: dict[str, object]) -> None:
    whole = {"type": "queued", "v": 1, "id": "a", "seq": 0, "attempt": 0}
    assert unpack_event(msgspec.json.encode(whole)) == events.QueuedEvent(id="a", seq=0)
    with pytest.raises(Rejected, match=next(iter(change))):
        unpack_event(msgspec.json.encode(whole | change))


@pytest.mark.parametrize("missing", ["type", "id", "seq"])
def test_a_missing_field_is_refused(missing: str) -> None:
    whole = {"type": "queued", "v": 1, "id": "a", "seq": 0}
    with pytest.raises(Rejected, match=missing):
        unpack_event(msgspec.json.encode({name: value for name, value in whole.items() if name != missing}))


def test_an_event_needs_the_fields_of_its_type() -> None:
    with pytest.raises(Rejected, match="text"):
        unpack_event(b'{"type":"delta","id":"a","seq":0}')
    with pytest.raises(Rejected, match="result"):
        unpack_event(b'{"type":"finished","id":"a","seq":0}')


def test_an_event_names_its_type_and_writes_itself_as_on_the_wire() -> None:
    event = events.DeltaEvent(id="a", seq=3, attempt=1, text="a cat\n")
    assert event.type == "delta"
    assert "\n" not in event.json()
    assert unpack_event(event.json().encode()) == event


def test_an_event_of_a_later_version_is_reported_by_its_type_and_number() -> None:
    packed = b'{"type":"progress","v":1,"id":"a","seq":3,"attempt":1,"progress":{"done":0.5}}'
    assert unpack_event(packed) == events.UnknownEvent(type="progress", id="a", seq=3, attempt=1)


@pytest.mark.parametrize("missing", ["type", "id", "seq"])
def test_an_event_of_an_unknown_type_needs_the_common_fields(missing: str) -> None:
    whole = {"type": "progress", "v": 1, "id": "a", "seq": 0}
    with pytest.raises(Rejected):
        unpack_event(msgspec.json.encode({name: value for name, value in whole.items() if name != missing}))
