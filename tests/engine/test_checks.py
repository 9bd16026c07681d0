from dataclasses import replace

import pytest

from stoop_worker.engine.checks import check_request
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Caption, Query, Refusal, Request, Sampling
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import micro_moondream

SPEC = MoondreamFamily(micro_moondream()).spec
NAN = float("nan")


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-0.1),
        Sampling(temperature=NAN),
        Sampling(temperature=float("inf")),
        Sampling(top_p=1.1),
        Sampling(top_p=NAN),
        Sampling(max_tokens=0),
        Sampling(max_objects=0),
        Sampling(top_k=-1),
        Sampling(stop=("",)),
        Sampling(stop=("a",) * 17),
        Sampling(stop_ids=(512,)),
    ],
)
def test_sampling_out_of_range_is_refused(sampling: Sampling) -> None:
    with pytest.raises(RequestInvalid):
        check_request(Request("a", Query("?"), (), sampling), SPEC)


def test_a_task_that_the_model_lacks_is_an_unsupported_skill() -> None:
    with pytest.raises(RequestInvalid, match="cannot caption: it can query") as caught:
        check_request(Request("a", Caption()), replace(SPEC, tasks=(Query,)))
    assert caught.value.refusal is Refusal.UNSUPPORTED_SKILL
