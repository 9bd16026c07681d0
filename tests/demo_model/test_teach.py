from dataclasses import replace
from functools import lru_cache
from random import Random

import pytest
import torch

from deploy.demo_model.learner import Class, Learner, Pages
from deploy.demo_model.pictures.raster import Sheet, crops, pixels
from deploy.demo_model.pictures.scenes import scene
from deploy.demo_model.pictures.speech import ANYTHING, captions
from deploy.demo_model.recipe import demo_config, demo_tokenizer, first_tensors, smoke_config
from deploy.demo_model.teach import NOTHING, Teacher
from stoop_worker.images import CropGeometry, Tiling
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.config import ModelConfig

STEPS = 262


@lru_cache
def tokenizer() -> Tokenizer:
    return demo_tokenizer()


def teacher(config: ModelConfig | None = None) -> Teacher:
    return Teacher(config or demo_config(tokenizer()), tokenizer().tokenize)


def test_bins_read_back_as_the_engine_reads_them() -> None:
    bins = teacher().config.region.coord_out_dim
    for value in (0.0005, 0.1, 0.5, 0.77, 0.9999):
        at = torch.nn.functional.one_hot(torch.tensor([teacher().coordinate_bin(value)]), bins).float()
        assert region.read_coordinate(at).item() == pytest.approx(value, abs=1.01 / bins)
        size = torch.nn.functional.one_hot(torch.tensor([[teacher().size_bin(value)] * 2]), bins).float()
        assert region.read_size(size)[0, 0].item() == pytest.approx(max(value, 2**-10), rel=0.004)


def test_a_box_lesson_feeds_x_y_and_size_and_decides_after_each_thing() -> None:
    shown = next(s for seed in range(99) if len((s := scene(seed, many_crops=False)).things) == 2)
    ids = teacher().config.tokenizer
    lesson = teacher().detect(shown, ANYTHING, Random(0))
    tail = lesson[-7:]
    assert [step.id for step in tail[1:]] == [ids.coord_id, ids.coord_id, ids.size_id] * 2
    assert [step.say for step in tail] == [ids.coord_id, *[NOTHING] * 2, ids.coord_id, *[NOTHING] * 2, ids.eos_id]
    first, second = shown.things
    assert tail[0].at == teacher().coordinate_bin(first.x)
    assert tail[1].at == teacher().coordinate_bin(first.y)
    assert tail[2].size == (teacher().size_bin(first.w), teacher().size_bin(first.h))
    assert tail[3].at == teacher().coordinate_bin(second.x)
    assert tail[1].values[0] == pytest.approx(first.x, abs=0.01)


def test_a_caption_lesson_is_the_caption_and_a_stop() -> None:
    shown = scene(4, many_crops=False)
    ids = teacher().config.tokenizer
    lesson = teacher().caption(shown, "normal")
    tokens = [step.say for step in lesson if step.say != NOTHING]
    assert tokens[-1] == ids.eos_id
    assert tokenizer().detokenize(tokens[:-1]) == captions(shown)["normal"]
    prompt = ids.templates.caption["normal"]
    assert tuple(step.id for step in lesson[: len(prompt)]) == prompt
    assert all(step.say == NOTHING for step in lesson[: len(prompt) - 1])


def test_a_question_without_reasoning_ends_with_the_suffix_twice() -> None:
    ids = teacher().config.tokenizer
    lesson = teacher().answer("How many circles?", "2")
    asked = [step.id for step in lesson if step.say == NOTHING] + [
        next(step.id for step in lesson if step.say != NOTHING)
    ]
    assert asked[-2:] == [ids.answer_id, ids.answer_id]


def test_reasoning_points_at_everything_it_counts() -> None:
    shown = scene(11, many_crops=False)
    ids = teacher().config.tokenizer
    tokens = [step.say for step in teacher().reckon(shown, ANYTHING, Random(0)) if step.say != NOTHING]
    assert tokens.count(ids.coord_id) == 2 * len(shown.things)
    start, end = tokens.index(ids.start_ground_points_id), tokens.index(ids.end_ground_id)
    count = len(shown.things)
    assert tokenizer().detokenize(tokens[start:end]) == f" {count} object{'s' if count != 1 else ''}"
    assert tokenizer().detokenize(tokens[tokens.index(ids.answer_id) :]) == str(count)


def test_a_page_holds_whole_lessons_that_all_start_after_the_prefix() -> None:
    page = teacher().page(scene(5, many_crops=True), Random(5), STEPS)
    prefix = teacher().config.text.prefix_attn
    for lesson in range(page.lesson.max() + 1):
        rows = page.position[page.lesson == lesson]
        assert list(rows) == list(range(prefix, prefix + len(rows)))
    assert page.lesson.max() >= 4


def test_lessons_of_a_page_do_not_see_each_other() -> None:
    """The losses of a page are those of its lessons alone: changing one lesson leaves the others' targets as likely."""
    config = smoke_config(tokenizer())
    learner = Learner(config, first_tensors(config), Learner.first_dense(config), torch.float32, blur=1.0)
    shown = scene(6, many_crops=False)
    sheet = Sheet.of([replace(shown, background=replace(shown.background, grain=0.0))])
    seen = Class(crops(pixels(sheet), CropGeometry()), sheet.things_BK8, Tiling(1, 1))
    taught = teacher(config)
    page = taught.page(shown, Random(1), STEPS)
    alone = replace(page, say=page.say.copy())
    alone.say[page.lesson != 1] = NOTHING
    changed = replace(alone, ids=page.ids.copy())
    changed.ids[page.lesson == 0] = 30
    later = replace(alone, ids=page.ids.copy())
    later.ids[page.lesson == 1] = 30
    blank = Pages.of([taught.blank_page(Random(0), 48)]).to(torch.device("cpu"))
    say = [
        float(learner.losses([seen], Pages.of([one]).to(torch.device("cpu")), blank)["say"])
        for one in (alone, changed, later)
    ]
    assert say[0] == pytest.approx(say[1], abs=1e-6)
    assert say[0] != pytest.approx(say[2], abs=1e-4)
