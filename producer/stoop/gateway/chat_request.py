"""OpenAI's chat request: the parameters that are read, ignored without harm, or refused by their names."""

from typing import Any, Literal

import msgspec

from stoop.foreign_parameters import ForeignParameters, refusal_of
from stoop.gateway.errors import ApiError
from stoop.gateway.images import image_of
from stoop_schemas.response_format import ResponseFormat
from stoop_schemas.skill import CaptionLength, SpatialRef

__all__ = [
    "ChatRequest",
    "ImagePart",
    "ImageUrl",
    "Message",
    "Question",
    "StreamOptions",
    "TextPart",
    "check_chat",
    "conversation",
    "one_question",
]


class ImageUrl(msgspec.Struct, frozen=True):
    """The address of an image, and the `detail` in which the model sees it."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image of a message; in the short form, its address alone."""

    image_url: ImageUrl | str

    @property
    def shown(self) -> ImageUrl:
        """The image, of either form."""
        return ImageUrl(self.image_url) if isinstance(self.image_url, str) else self.image_url


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart | ImagePart] | None = None
    tool_calls: Any = None
    function_call: Any = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatRequest(ForeignParameters, frozen=True, kw_only=True):
    """OpenAI's fields, Moondream's `reasoning`, and ours: `skill`, `object`, `length`, `spatial_refs`, `max_objects`,
    `top_k`, `regex`, `min_pixels`, `max_pixels`, `lane` and `deadline`.
    """

    model: str
    messages: list[Message]
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    reasoning_effort: str | None = None
    reasoning: bool | None = None
    skill: Literal["query", "caption", "detect", "point"] | None = None
    object: str | None = None
    length: CaptionLength | None = None
    spatial_refs: list[SpatialRef] | None = None
    max_objects: int | None = None
    lane: str | None = None
    deadline: int | None = None


class Question(msgspec.Struct, frozen=True):
    """One question with at most one image."""

    text: str
    image: str | None


def check_chat(body: ChatRequest) -> None:
    """Raise an `ApiError` (400, `unsupported_parameter`) for the first parameter that cannot be honoured."""
    refusal = refusal_of(msgspec.structs.asdict(body))
    if refusal is not None:
        name, message = refusal
        raise ApiError(400, "unsupported_parameter", message, param=name)


def one_question(messages: list[Message]) -> Question:
    """Return the one question of a conversation, the text of its system messages before it.

    Models with the skill `query` answer one question and know no conversation, so history is refused rather than
    dropped. Raises an `ApiError` (400, `unsupported_value`).
    """
    users = [message for message in messages if message.role == "user"]
    others = {message.role for message in messages} - {"system", "developer", "user"}
    if len(users) != 1 or others:
        raise _unsupported("this model answers one question: send one user message, without a conversation before it")
    if messages[-1] is not users[0]:
        raise _unsupported("the user message must be the last one")
    texts, images = [], []
    for message in messages:
        content = message.content or ""
        for part in [TextPart(content)] if isinstance(content, str) else content:
            if isinstance(part, TextPart):
                texts.append(part.text)
            elif message.role != "user":
                raise _unsupported("an image belongs to the user message")
            else:
                images.append(part.shown.url)
    if len(images) > 1:
        raise _unsupported("this model looks at one image: send one")
    return Question("\n".join(text for text in texts if text), images[0] if images else None)


async def conversation(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the messages for a job of the skill `chat`, with large images as bytes.

    Raises an `ApiError` (400): `unsupported_value` for the call or the result of a tool.
    """
    return [{"role": _role_of(message), "content": await _content_of(message)} for message in messages]


def _role_of(message: Message) -> str:
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise _unsupported("this model calls no tools, so it takes no message of one")
    return "system" if message.role == "developer" else message.role


async def _content_of(message: Message) -> str | list[dict[str, Any]]:
    if not isinstance(message.content, list):
        return message.content or ""
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else await _image_part(part.shown)
        for part in message.content
    ]


async def _image_part(image: ImageUrl) -> dict[str, Any]:
    shown = {"url": await image_of(image.url, "messages")}
    return {"type": "image_url", "image_url": shown if image.detail is None else {**shown, "detail": image.detail}}


def _unsupported(message: str) -> ApiError:
    return ApiError(400, "unsupported_value", message, param="messages")
