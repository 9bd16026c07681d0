"""A chat about one image as a query: Moondream answers single questions."""

from dataclasses import replace

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Chat, Message, Part, Query, Request

__all__ = ["as_query"]


def as_query(request: Request) -> Request:
    """Return a chat as the equivalent query; any other request is returned unchanged.

    The texts of system messages come before the question. Raises `RequestInvalid` for a chat of several turns, because
    the model was trained on none.
    """
    chat = request.task
    if not isinstance(chat, Chat):
        return request
    if [message.role for message in chat.messages if message.role != "system"] != ["user"]:
        raise RequestInvalid("this model answers single questions: send one user message, with at most one image")
    asked = sum(part is Part.IMAGE for message in chat.messages for part in message.content)
    if asked != len(request.media):
        raise RequestInvalid(f"the messages have {asked} images, and {len(request.media)} came with them")
    system_first = sorted(chat.messages, key=lambda message: message.role != "system")
    return replace(request, task=Query("\n".join(filter(None, map(_text, system_first))), reasoning=False))


def _text(message: Message) -> str:
    return "\n".join(part for part in message.content if isinstance(part, str))
