"""The training and the checkpoint that it ends with."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from deploy.demo_hearing.bank import Bank
from deploy.demo_hearing.export import export
from deploy.demo_hearing.network import Sizes, decode, encode, logits
from deploy.demo_hearing.plans import Planner
from deploy.demo_hearing.train import Trainer
from deploy.demo_hearing.windows import Batch, Sound, batch_of
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper.family import WhisperFamily
from tests.demo_hearing.small_bank import small_bank

CPU = torch.device("cpu")
SIZES = Sizes(dim=64, encoder_layers=1, layers=2)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bank, Path]:
    folder = tmp_path_factory.mktemp("bank")
    return small_bank(folder), folder


def batch(bank: Bank, seed: int, longest: float) -> Batch:
    return batch_of(Planner(bank), bank.controls["endoftext"], seed, 2, longest)


@pytest.mark.parametrize("muon", [False, True])
def test_the_losses_of_a_batch_fall_and_every_tensor_learns(bank: tuple[Bank, Path], muon: bool) -> None:
    trainer = Trainer(bank[0], SIZES, CPU, 2e-3, muon=muon)
    before = {name: tensor.detach().clone() for name, tensor in trainer.tensors.items()}
    drawn = batch(bank[0], 1, 3.0)
    losses = [{name: float(loss.detach()) for name, loss in trainer.step(drawn, 3.0, 0.0).items()} for _ in range(12)]
    assert losses[-1]["say"] < losses[0]["say"] - 0.05
    still = {name for name, tensor in trainer.tensors.items() if torch.equal(before[name], tensor)}
    assert still == {"model.encoder.embed_positions.weight"}


def test_the_checkpoint_is_a_whisper_with_the_logits_of_the_training(bank: tuple[Bank, Path], tmp_path: Path) -> None:
    read, folder = bank
    trainer = Trainer(read, SIZES, CPU, 2e-3, muon=False)
    trainer.save(tmp_path / "run", [])
    export(folder, tmp_path / "run", tmp_path / "model")
    loaded = load_model(tmp_path / "model", LoadOptions(CPU, torch.float32))
    assert isinstance(loaded, WhisperFamily)
    assert (loaded.name, loaded.untrained) == ("demo-hearing", False)
    drawn = batch(read, 2, 30.0)
    frames, ids = Sound(read, CPU).frames(drawn, 30.0), torch.from_numpy(drawn.ids_BT)
    tensors = {name: tensor.detach().half().float() for name, tensor in trainer.tensors.items()}
    oracle = transformers.WhisperForConditionalGeneration.from_pretrained(
        tmp_path / "model", dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        found = logits(decode(ids, encode(frames, tensors, SIZES), tensors, SIZES)[0], tensors)
        expected = oracle(input_features=frames, decoder_input_ids=ids).logits
    assert np.abs((found - expected).numpy()).max() < 1e-4
