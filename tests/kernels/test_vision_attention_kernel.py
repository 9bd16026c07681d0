"""The vision attention kernel against its reference."""

import pytest
import torch

from worker.kernels.vision_attention import kernel, reference


@pytest.mark.parametrize(("patches", "dim"), [(64, 72), (75, 72), (33, 80), (16, 68)])
def test_attention_over_views_of_one_tensor(patches: int, dim: int) -> None:
    random = torch.Generator().manual_seed(patches)
    qkv = torch.randn(2, patches, 3, 2, dim, generator=random).half()
    q, k, v = qkv.unbind(2)
    found = kernel.vision_attention(3 * q, k, v, shape=kernel.Shape(rows=32, keys=32))
    expected = reference.vision_attention(3 * q.float(), k.float(), v.float())
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-3)
    views = kernel.vision_attention(q, k, v, shape=kernel.Shape(rows=64, keys=16))
    alone = kernel.vision_attention(*(x.contiguous() for x in (q, k, v)), shape=kernel.Shape(rows=64, keys=16))
    assert torch.equal(views, alone)


def test_what_it_takes() -> None:
    assert kernel.takes(torch.empty(1, 1, 1, 72, dtype=torch.bfloat16))
    assert not kernel.takes(torch.empty(1, 1, 1, 64, dtype=torch.bfloat16))
    assert not kernel.takes(torch.empty(1, 1, 1, 72))
