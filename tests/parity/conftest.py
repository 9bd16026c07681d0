"""The golden tiny model run once: its sizes are not those of the demo, see `tiny_moondream`."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from deploy.demo_model.dense_vision import project
from stoop_worker.images import cut
from stoop_worker.kernels.patchify import patchify
from stoop_worker.kernels.stitch_pool.reference import pool, stitch
from stoop_worker.models.moondream import vision
from stoop_worker.models.moondream.model import Moondream
from tests.support.golden_image import golden_image
from tests.support.one_sequence import OneSequence
from tests.support.tiny_model import tiny_moondream

PROMPT = [1, 35, 7, 2, 40, 41, 3]


@dataclass(frozen=True)
class Golden:
    """Every stage's value for one image and one prompt, float32 on the CPU."""

    patches: Tensor
    features: Tensor
    stitched: Tensor
    embeddings: Tensor
    prefix_hidden: Tensor
    prompt_hidden: Tensor
    logits: Tensor
    sequence: OneSequence


@pytest.fixture(scope="session")
def model() -> Moondream:
    return tiny_moondream(vocab_size=64, vision_layers=27, max_context=800)


@pytest.fixture(scope="session")
def golden(model: Moondream) -> Golden:
    config, weights = model.config.vision, model.weights.vision
    pixels = torch.from_numpy(cut(golden_image(378, 378), config.geometry).pixels[:1])
    local_shape = (8, config.patches, config.enc_dim)
    local = torch.arange(8 * config.patches * config.enc_dim, dtype=torch.float64).mul(0.01).sin().float()
    with torch.inference_mode():
        features = vision.features(pixels, weights, config, dtype=torch.float32)
        stitched = stitch(local.view(local_shape), rows=2, cols=4, margin=config.overlap_margin)
        embeddings = project(features[0], pool(stitched, config.grid), weights)
        bos = text.embed(torch.tensor([model.config.tokenizer.bos_id]), model.weights.text)
        sequence = OneSequence(model, prefix_len=model.config.text.prefix_attn)
        prefix_hidden = sequence.step(torch.cat((bos, embeddings)))
        prompt_hidden = sequence.tokens(PROMPT)
        logits = sequence.logits(prompt_hidden)
    patches = patchify(pixels, config.enc_patch_size, dtype=torch.float32)
    return Golden(patches, features, stitched, embeddings, prefix_hidden, prompt_hidden, logits, sequence)
