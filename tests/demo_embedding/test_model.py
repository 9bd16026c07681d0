"""The embedder that comes with the project: neighbours must mean the same."""

from pathlib import Path

from deploy.demo_embedding.exam import figures, vectors
from deploy.demo_embedding.texts import all_meanings

MODEL = Path(__file__).parents[2] / "deploy" / "demo_embedding" / "model"


def test_neighbours_mean_the_same_in_both_languages() -> None:
    found = figures(MODEL)
    assert found["same"] > 0.95
    assert found["German"] > 0.95
    assert found["subject"] > 0.85


def test_more_shared_features_are_nearer() -> None:
    texts = (
        "There are three red circles.",
        "I can see three red circles.",
        "I can see three red stars.",
        "I can see nine blue stars.",
        "There will be rain tomorrow.",
    )
    first, *others = vectors(MODEL, texts)
    cosines = [float(first @ other) for other in others]
    assert cosines == sorted(cosines, reverse=True)


def test_a_sixth_of_the_meanings_is_held_out() -> None:
    meanings = all_meanings()
    assert 0.1 < sum(meaning.is_held_out for meaning in meanings) / len(meanings) < 0.25


def test_the_model_is_small() -> None:
    assert (MODEL / "model.safetensors").stat().st_size < 3_000_000
