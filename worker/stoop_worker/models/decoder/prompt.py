"""Checks a chat, and turns it into the messages that a template takes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Chat, Part, Request
from stoop_worker.models.decoder.model import Language
from stoop_worker.models.loading.chat_template import TemplateError

__all__ = ["chat_ids", "text_messages"]


def _check_chat(chat: Chat, images: int) -> None:
    """Raise a `RequestInvalid` that names the change to make, unless a template can be given this chat."""
    if not chat.messages:
        raise RequestInvalid("a chat needs at least one message")
    if chat.messages[-1].role == "assistant":
        raise RequestInvalid("the last message must not be the assistant's: the model writes that one")
    asked = sum(part is Part.IMAGE for message in chat.messages for part in message.content)
    if asked != images:
        raise RequestInvalid(f"the messages have {asked} images, and {images} came with them")
    try:
        "".join(part for message in chat.messages for part in message.content if isinstance(part, str)).encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, which no tokenizer accepts
        raise RequestInvalid("a message is not valid Unicode") from error


def chat_ids(
    request: Request, language: Language, messages_of: Callable[[Chat], Sequence[Mapping[str, Any]]]
) -> list[int]:
    """Lay a chat out as ids by the model's template; raises `RequestInvalid`."""
    chat = request.task
    assert isinstance(chat, Chat), "the engine refuses other tasks"
    _check_chat(chat, len(request.media))
    try:
        ids = language.prompt.ids(messages_of(chat), today=chat.today)
    except TemplateError as error:
        raise RequestInvalid(str(error)) from error
    if not ids:
        raise RequestInvalid("the model's chat template makes an empty prompt of these messages")
    return ids


def text_messages(chat: Chat) -> Sequence[dict[str, Any]]:
    """Return messages for a template that knows only text; several texts of one message become lines."""
    if any(part is Part.IMAGE for message in chat.messages for part in message.content):
        raise RequestInvalid("this model takes no images: send messages of text alone")
    return [
        {"role": message.role, "content": "\n".join(part for part in message.content if isinstance(part, str))}
        for message in chat.messages
    ]
