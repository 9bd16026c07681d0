import msgspec
import pytest

from stoop_schemas.codec import unpack_result
from stoop_schemas.failure import Rejected
from stoop_schemas.result import Result
from stoop_schemas.state import TERMINAL, State


@pytest.mark.parametrize("status", sorted(set(State) - TERMINAL))
def test_a_job_that_has_not_ended_has_no_result(status: State) -> None:
    with pytest.raises(ValueError, match="status"):
        Result(id="a", status=status)
    with pytest.raises(Rejected, match="status"):
        unpack_result(msgspec.json.encode({"id": "a", "status": status}))


def test_an_unknown_finish_reason_is_refused() -> None:
    with pytest.raises(Rejected, match="finish_reason"):
        unpack_result(b'{"id":"a","status":"completed","finish_reason":"bored"}')


@pytest.mark.parametrize("missing", ["id", "status"])
def test_a_result_without_a_required_field_is_refused(missing: str) -> None:
    whole = {"id": "a", "status": "completed"}
    with pytest.raises(Rejected, match=missing):
        unpack_result(msgspec.json.encode({name: value for name, value in whole.items() if name != missing}))
