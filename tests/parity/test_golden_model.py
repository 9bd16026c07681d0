"""The tiny model against values measured on Moondream's reference, float32 on the CPU."""

import numpy as np
import pytest
import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.model import Moondream
from tests.parity.conftest import PROMPT, Golden
from tests.support.one_sequence import OneSequence


def agrees(
    found: Tensor, first: list[float], *, total: float | None = None, norm: float | None = None, close: float = 1e-4
) -> None:
    np.testing.assert_allclose(found.flatten()[: len(first)].tolist(), first, rtol=close, atol=close)
    if total is not None:
        assert found.double().sum().item() == pytest.approx(total, rel=close, abs=1e-3)
    if norm is not None:
        assert found.double().norm().item() == pytest.approx(norm, rel=close)


def test_the_formula_makes_the_weights_the_values_were_measured_with(model: Moondream) -> None:
    agrees(model.weights.text.wte, [0.6016327, 0.3953979, 0.2776152, 0.9901903], close=1e-6)
    agrees(model.weights.text.blocks[0].attn.qkv.weight, [0.1370366, -0.0693900, -0.0485642], close=1e-6)


def test_patches_of_the_image(golden: Golden) -> None:
    first = [-1, -1, -0.992157, -0.984314, -0.984314, -0.976471]
    agrees(golden.patches, first, total=-9547.901, norm=429.1393)


def test_vision_encoder_output(golden: Golden) -> None:
    first = [-1.926425, 0.553726, 0.734017, 0.960480, -0.597854, -0.044687]
    assert golden.features.shape == (1, 729, 144)
    agrees(golden.features, first, total=295.2462, norm=321.5432)


def test_stitched_grid(golden: Golden) -> None:
    assert golden.stitched.shape == (46, 84, 144)
    agrees(golden.stitched, [0, 0.01, 0.019999, 0.029996], total=1790.373, norm=527.6484)


def test_image_embeddings(golden: Golden) -> None:
    first = [0.358722, -0.915350, 0.337577, -0.195174, -0.158793, -0.097463]
    assert golden.embeddings.shape == (729, 128)
    agrees(golden.embeddings, first, total=2662.268, norm=137.6686)


def test_last_hidden_row_of_the_prefix(golden: Golden) -> None:
    first = [0.388041, 0.280053, -0.718097, -2.325683, 3.430756, 1.333504]
    agrees(golden.prefix_hidden[729], first, total=-5.76122, norm=21.02422)


def test_all_hidden_rows_of_the_prefix(golden: Golden) -> None:
    assert golden.prefix_hidden.shape == (730, 128)
    agrees(golden.prefix_hidden, [-0.422297, 0.522314, -0.851028], total=-10147.83, norm=560.7836)


def test_cached_keys_of_the_last_prefix_position(golden: Golden) -> None:
    first = [-0.299402, -0.060168, 0.476784, 0.418548, -0.331115, 0.741070]
    agrees(golden.sequence.cached_keys(layer=2, position=729)[1], first, total=-8.24154, norm=8.41429)


def test_last_hidden_row_of_the_prompt(golden: Golden) -> None:
    first = [-0.265074, -0.334408, 0.202569, -1.040672, 0.851950, -0.007055]
    agrees(golden.prompt_hidden[-1], first, total=-8.07013, norm=18.74243)


def test_logits(golden: Golden) -> None:
    first = [0.729910, 0.989253, 0.362498, 0.311500, 0.196876, 0.361152]
    agrees(golden.logits, first, total=0.54882, norm=7.22181)


def test_likeliest_tokens(golden: Golden) -> None:
    values, ids = golden.logits.topk(5)
    assert ids.tolist() == [63, 60, 50, 61, 53]
    agrees(values, [2.1772, 1.8406, 1.5747, 1.4821, 1.4801])


def test_one_call_equals_two_calls_with_a_cache(golden: Golden, model: Moondream) -> None:
    weights, config = model.weights.text, model.config.text
    tokens = text.embed(torch.tensor([0, *PROMPT]), weights)
    x = torch.cat((tokens[:1], golden.embeddings, tokens[1:]))
    hidden = text.forward(x, torch.arange(len(x)), weights, config, text.dense_attend(config.prefix_attn))
    torch.testing.assert_close(hidden, torch.cat((golden.prefix_hidden, golden.prompt_hidden)), rtol=1e-4, atol=1e-4)


def test_detect_loop(model: Moondream, golden: Golden) -> None:
    weights = model.weights.region
    sequence = OneSequence(model, prefix_len=model.config.text.prefix_attn)
    bos = text.embed(torch.tensor([0]), model.weights.text)
    sequence.step(torch.cat((bos, golden.embeddings)))
    hidden = sequence.tokens(PROMPT)
    boxes = []
    for _ in range(3):
        x_value = region.read_coordinate(region.coordinate_logits(hidden[-1:], weights))
        hidden = sequence.step(region.write_coordinate(x_value, weights))
        y_value = region.read_coordinate(region.coordinate_logits(hidden, weights))
        hidden = sequence.step(region.write_coordinate(y_value, weights))
        size_bins = region.size_logits(hidden, weights).argmax(dim=-1)[0].tolist()
        size = region.read_size(region.size_logits(hidden, weights))
        hidden = sequence.step(region.write_size(size, weights))
        logits = sequence.logits(hidden)
        boxes.append(((x_value * 1024).item(), (y_value * 1024).item(), *size_bins, logits.argmax().item()))
        boxes[-1] += tuple(round(logits[token].item(), 5) for token in (5, 0))
    np.testing.assert_allclose(
        boxes,
        [
            (201, 201, 89, 800, 60, 0.03881, 0.47835),
            (264, 201, 89, 800, 60, 0.04291, 0.47599),
            (264, 201, 89, 800, 60, 0.04479, 0.46478),
        ],
        atol=1e-4,
    )


def test_size_embedding(model: Moondream) -> None:
    size = 2.0 ** (torch.tensor([[89.0, 800.0]]) / 1023 * 10 - 10)
    first = [1.101804, 0.483064, -1.404361, -1.155416]
    agrees(region.write_size(size, model.weights.region), first, norm=7.88612)


def test_embeddings_of_spatial_references(model: Moondream) -> None:
    coordinates = torch.tensor([0.25, 0.5, (0.1 + 0.5) / 2, (0.2 + 0.9) / 2])
    found = region.write_coordinate(coordinates, model.weights.region)
    assert found.shape == (4, 128)
    agrees(found, [-0.048441, 1.032226, -0.017087], total=12.23476, norm=15.34260)
    size = region.write_size(torch.tensor([[0.5 - 0.1, 0.9 - 0.2]]), model.weights.region)
    agrees(size, [-0.268343, 0.030159, -0.518521], norm=8.86077)


def test_text_alone_is_causal(model: Moondream) -> None:
    sequence = OneSequence(model, prefix_len=0)
    logits = sequence.logits(sequence.tokens([0, 1, 15, 2, 40, 41, 3, 4]))
    first = [2.230757, -0.751129, 1.053868, -1.324768, 0.518707, 0.385108]
    agrees(logits, first, norm=7.95834)
    assert logits.argmax() == 0
