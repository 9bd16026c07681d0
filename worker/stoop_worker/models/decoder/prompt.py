"""A chat to the messages that a template takes, and the checks before it."""

from collections.abc import Sequence
from typing import Any

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Chat, Part

__all__ = ["check_chat", "text_messages"]


def check_chat(chat: Chat, images: int) -> None:
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


def text_messages(chat: Chat) -> Sequence[dict[str, Any]]:
    """Return messages for a template that knows only text; several texts of one message become lines."""
    if any(part is Part.IMAGE for message in chat.messages for part in message.content):
        raise RequestInvalid("this model takes no images: send messages of text alone")
    return [
        {"role": message.role, "content": "\n".join(part for part in message.content if isinstance(part, str))}
        for message in chat.messages
    ]
