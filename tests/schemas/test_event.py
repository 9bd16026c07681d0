import msgspec
import pytest

from schemas import event as events
from schemas.codec import unpack_event
from schemas.event import Event, TerminalEvent
from schemas.failure import Rejected
from schemas.state import TERMINAL


def test_every_terminal_state_has_its_last_event() -> None:
    tags = {kind.__struct_config__.tag for kind in TerminalEvent.__args__}
    assert tags == {"finished", "failed", "cancelled", "expired"}
    assert len(tags) == len(TERMINAL)
    assert set(TerminalEvent.__args__) < set(Event.__args__)


@pytest.mark.parametrize(
    "change", [{"seq": -1}, {"seq": "0"}, {"attempt": -1}, {"type": "paused"}, {"type": None}, {"v": 2}, {"id": None}]
)
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


def test_an_event_needs_what_its_type_tells() -> None:
    with pytest.raises(Rejected, match="text"):
        unpack_event(b'{"type":"delta","id":"a","seq":0}')
    with pytest.raises(Rejected, match="result"):
        unpack_event(b'{"type":"finished","id":"a","seq":0}')
