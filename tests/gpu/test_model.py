"""The model on a CUDA device against the model on the CPU in float32."""

import pytest
import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from stoop_worker.images import Crops, cut
from stoop_worker.kernels.patchify import patchify
from stoop_worker.kernels.sampling import sample
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.model import Moondream
from tests.support.encoded import encode_images
from tests.support.golden_image import golden_image
from tests.support.one_sequence import OneSequence
from tests.support.tiny_model import tiny_moondream

# float32 products on the device may run in TF32, unless disabled: see `exact_products`
CLOSE = {torch.float32: 2e-4, torch.bfloat16: 4e-2}
QUESTION = "How many red circles are there?"


@pytest.fixture(autouse=True)
def exact_products() -> None:
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="module")
def images() -> list[Crops]:
    geometry = tiny_moondream().config.vision.geometry
    return [cut(golden_image(*size), geometry) for size in ((300, 200), (640, 480))]


def error(found: Tensor, expected: Tensor) -> float:
    found, expected = found.cpu().double(), expected.cpu().double()
    return ((found - expected).norm() / expected.norm()).item()


def embed_images(model: Moondream, images: list[Crops]) -> Tensor:
    with torch.inference_mode():
        return torch.stack(encode_images(model, images))


def hidden_after(model: Moondream, embeddings: Tensor | None) -> Tensor:
    """Return all hidden states of a prefix, a question, and three tokens one at a time."""
    sequence = OneSequence(model, prefix_len=0 if embeddings is None else model.config.text.prefix_attn)
    bos = text.embed(torch.tensor([model.config.tokenizer.bos_id], device=model.device), model.weights.text)
    parts = [sequence.step(bos if embeddings is None else torch.cat((bos, embeddings.to(bos))))]
    parts.append(sequence.tokens(model.tokenizer.tokenize(QUESTION)))
    parts += [sequence.tokens([token]) for token in (3, 40, 41)]
    return torch.cat(parts)


@pytest.mark.parametrize("dtype", CLOSE)
def test_image_embeddings(images: list[Crops], dtype: torch.dtype) -> None:
    found = embed_images(tiny_moondream(dtype, device="cuda"), images)
    assert (found.dtype, found.device.type) == (dtype, "cuda")
    assert error(found, embed_images(tiny_moondream(), images)) < CLOSE[dtype]


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("with_image", [True, False])
def test_prefill_and_decode_with_a_cache(images: list[Crops], dtype: torch.dtype, with_image: bool) -> None:
    embeddings = embed_images(tiny_moondream(), images)[0] if with_image else None
    model = tiny_moondream(dtype, device="cuda")
    found = hidden_after(model, None if embeddings is None else embeddings.to("cuda"))
    expected = hidden_after(tiny_moondream(), embeddings)
    assert error(found, expected) < CLOSE[dtype]
    logits = text.logits(found[-3:], model.weights.text)
    assert error(logits, text.logits(expected[-3:], tiny_moondream().weights.text)) < CLOSE[dtype]


@pytest.mark.parametrize("dtype", CLOSE)
def test_region(dtype: torch.dtype) -> None:
    model, exact = tiny_moondream(dtype, device="cuda").weights.region, tiny_moondream().weights.region
    hidden = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    moved = hidden.to("cuda", dtype)
    assert error(region.coordinate_logits(moved, model), region.coordinate_logits(hidden, exact)) < CLOSE[dtype]
    assert error(region.size_logits(moved, model), region.size_logits(hidden, exact)) < CLOSE[dtype]
    values = torch.tensor([[0.25, 0.5], [0.125, 1.0]])  # exact in bfloat16
    assert error(region.write_size(values.cuda(), model), region.write_size(values, exact)) < CLOSE[dtype]


def test_bins_read_as_on_the_cpu_to_the_last_digit() -> None:
    logits = torch.eye(1024).repeat_interleave(2, dim=0).view(1024, 2, 1024)
    assert torch.equal(region.read_size(logits.cuda()).cpu(), region.read_size(logits))
    assert torch.equal(region.read_coordinate(logits.cuda()).cpu(), region.read_coordinate(logits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_patches_are_the_same_to_the_bit(images: list[Crops], dtype: torch.dtype) -> None:
    pixels = torch.from_numpy(images[1].pixels)
    assert torch.equal(patchify(pixels.cuda(), 14, dtype=dtype).cpu(), patchify(pixels, 14, dtype=dtype))


def test_sampling_draws_as_on_the_cpu() -> None:
    random = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(64, 512, generator=random)
    temperatures = torch.tensor([0.0, 0.5, 1.0, 2.0]).repeat(16)
    top_ps, uniforms = torch.rand(64, generator=random), torch.rand(64, generator=random)
    found = sample(*(x.cuda() for x in (logits, temperatures, top_ps, uniforms))).cpu()
    expected = sample(logits, temperatures, top_ps, uniforms)
    greedy = temperatures == 0
    assert torch.equal(found[greedy], expected[greedy])
    # sums round differently: a draw that falls on the edge between two tokens may go either way
    assert (found == expected).float().mean() > 0.95


def test_a_decode_step_can_be_captured() -> None:
    model = tiny_moondream(torch.bfloat16, device="cuda")
    weights, config = model.weights.text, model.config.text
    ids, positions = (torch.full((4,), fill, device="cuda") for fill in (40, 7))

    def step() -> Tensor:
        x = text.embed(ids, weights)
        return text.logits(text.forward(x, positions, weights, config, lambda layer, q, k, v: v), weights)

    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        ids.fill_(41)
        graph.replay()
        torch.testing.assert_close(captured, step())
