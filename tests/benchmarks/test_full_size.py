from pathlib import Path

import torch

from benchmarks.engine.full_size import SIZES, open_model, spell, word_ids, write_folder
from stoop_worker.models.moondream.shapes import tensor_shapes


def test_every_word_of_an_answer_names_its_token() -> None:
    model = open_model("tiny", device="cpu", dtype=torch.float32)
    ids = [277, 300, 511]
    assert word_ids(model.tokenizer.detokenize(ids)) == ids
    assert word_ids(f"{spell(277)} {spell(51_199)}") == [277, 51_199]


def test_a_character_of_a_question_is_a_token() -> None:
    tokenizer = open_model("tiny", device="cpu", dtype=torch.float32).tokenizer
    assert len(tokenizer.tokenize("What is no. 7?")) == len("What is no. 7?")


def test_the_full_size_is_that_of_the_released_model() -> None:
    count = sum(torch.Size(shape).numel() for shape in tensor_shapes(SIZES["full"]).values())
    assert 1.90e9 < count < 1.95e9


def test_a_written_folder_loads_as_the_same_model(tmp_path: Path) -> None:
    write_folder(tmp_path, "tiny", device="cpu", dtype=torch.bfloat16, seed=3)
    drawn = open_model("tiny", device="cpu", dtype=torch.bfloat16, seed=3)
    loaded = open_model(str(tmp_path), device="cpu", dtype=torch.bfloat16)
    assert loaded.config == drawn.config
    assert loaded.untrained
    assert torch.equal(loaded.weights.text.lm_head.bias, drawn.weights.text.lm_head.bias)
    assert torch.equal(loaded.weights.vision.pos_emb, drawn.weights.vision.pos_emb)
