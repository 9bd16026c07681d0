import math

import pytest
import torch

from stoop_worker.models.moondream import region
from tests.support.tiny_model import tiny_moondream

WEIGHTS = tiny_moondream(torch.float64).weights.region


def test_logits_have_a_row_a_hidden_state() -> None:
    hidden = torch.randn(4, 128, dtype=torch.float64)
    assert region.coordinate_logits(hidden, WEIGHTS).shape == (4, 1024)
    assert region.size_logits(hidden, WEIGHTS).shape == (4, 2, 1024)
    batch = region.size_logits(hidden.view(2, 2, 128), WEIGHTS)
    torch.testing.assert_close(batch.view(4, 2, 1024), region.size_logits(hidden, WEIGHTS))


def test_width_comes_before_height() -> None:
    logits = torch.zeros(1, 2, 1024)
    logits[0, 0, 1023] = logits[0, 1, 0] = 1
    assert region.read_size(logits).tolist() == [[1.0, 2.0**-10]]


def test_equal_bins_read_as_the_lowest() -> None:
    assert region.read_coordinate(torch.zeros(2, 1024)).tolist() == [0, 0]


def test_coordinates_are_written_as_cosines_then_sines() -> None:
    values = torch.tensor([0.0, 0.25, 0.9], dtype=torch.float64)
    phases = 2 * math.pi * values[:, None] * WEIGHTS.coord_features
    features = torch.cat((phases.cos(), phases.sin()), dim=-1)
    expected = features @ WEIGHTS.coord_encoder.weight.T + WEIGHTS.coord_encoder.bias
    torch.testing.assert_close(region.write_coordinate(values, WEIGHTS), expected)


def test_sizes_are_written_from_both_sides_together() -> None:
    sizes = torch.tensor([[0.4, 0.7], [0.7, 0.4]], dtype=torch.float64)
    phases = 2 * math.pi * sizes @ WEIGHTS.size_features
    features = torch.cat((phases.cos(), phases.sin()), dim=-1)
    expected = features @ WEIGHTS.size_encoder.weight.T + WEIGHTS.size_encoder.bias
    found = region.write_size(sizes, WEIGHTS)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize(("value", "rounded"), [(269 / 1024, 0.26171875), (1023 / 1024, 1.0)])
def test_a_value_is_rounded_before_it_is_written(value: float, rounded: float) -> None:
    weights = tiny_moondream(torch.bfloat16).weights.region
    both = region.write_coordinate(torch.tensor([value, rounded]), weights)
    assert both.dtype == torch.bfloat16
    assert torch.equal(both[0], both[1])
