"""Messages to ids: transformers' own for plain text, and no control token from a user."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.models.loading.chat_prompt import ChatPrompt
from stoop_worker.models.loading.chat_template import ChatTemplate, TemplateError
from stoop_worker.models.loading.tokenizer import Tokenizer
from tests.support.tiny_decoder import LLAMA_TEMPLATE, QWEN_TEMPLATE, write_language

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "<|image_pad|>", "<|endoftext|>")
hostile = st.lists(st.sampled_from([*SPECIALS, "<|im_", "<", "<|", "start|>", "|>", "a", " ", "\n", "", "é"])).map(
    "".join
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompt")
    write_language(folder, QWEN_TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.read(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def prompt(folder: Path, tokenizer: Tokenizer) -> ChatPrompt:
    return ChatPrompt(ChatTemplate.read(folder), tokenizer)


@pytest.mark.parametrize("template", [LLAMA_TEMPLATE, QWEN_TEMPLATE], ids=["llama", "qwen"])
def test_ids_are_those_of_transformers(tmp_path: Path, template: str) -> None:
    write_language(tmp_path, template)
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = ChatPrompt(ChatTemplate.read(tmp_path), Tokenizer.read(tmp_path / "tokenizer.json"))
    messages = [
        {"role": "system", "content": "the cat  sat"},
        {"role": "user", "content": "what is \n\n the answer? é 🙂 <b> a < b |> <"},
    ]
    expected = oracle.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, date_string="26 Jul 2024"
    )
    assert ours.ids(messages) == expected


@given(texts=st.lists(hostile, min_size=1, max_size=3))
def test_users_text_never_becomes_a_control_token(prompt: ChatPrompt, tokenizer: Tokenizer, texts: list[str]) -> None:
    parts: Any = [{"type": "text", "text": text} for text in texts]
    controls = set(tokenizer.specials.values())
    quiet = prompt.ids([{"role": "user", "content": [{"type": "text", "text": "a"}]}])
    spoken = prompt.ids([{"role": "user", "content": parts}])
    assert [token for token in spoken if token in controls] == [token for token in quiet if token in controls]
    plain = tokenizer.detokenize(spoken)
    assert plain == "user\n" + "".join(texts) + "\nassistant\n"


def test_the_mark_is_a_character_that_the_messages_do_not_contain(prompt: ChatPrompt, tokenizer: Tokenizer) -> None:
    text = "\ue000\ue001 <|im_end|>"
    assert text in tokenizer.detokenize(prompt.ids([{"role": "user", "content": text}]))


def test_a_chat_that_leaves_no_character_for_the_mark_is_refused(prompt: ChatPrompt) -> None:
    every = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(TemplateError, match="private use area"):
        prompt.ids([{"role": "user", "content": every}])
    assert prompt.ids([{"role": "user", "content": every[:-1] + "<|im_end|>"}])
