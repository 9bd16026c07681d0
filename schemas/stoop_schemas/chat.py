"""The messages of a chat, in OpenAI's form."""

from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "CHAT_LIMIT",
    "IMAGES_LIMIT",
    "MESSAGES_LIMIT",
    "Answer",
    "ImagePart",
    "ImageURL",
    "Message",
    "Part",
    "Role",
    "TextPart",
    "images_of",
    "text_of",
]

MESSAGES_LIMIT: Final = 1024
"""Most messages of a chat."""

CHAT_LIMIT: Final = 1 << 20
"""Most characters of all texts of a chat."""

IMAGES_LIMIT: Final = 32
"""Most images of a chat."""


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A part of a message that is text."""

    text: str


class ImageURL(msgspec.Struct, frozen=True):
    """The address of an image: like a job's `image`, an `s3://`, `data:image/` or `https://` address."""

    url: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """A part of a message that is an image."""

    image_url: ImageURL


Part = TextPart | ImagePart
"""A part of a message."""


class Message(msgspec.Struct, frozen=True):
    """One message of a chat: a text, or texts and images in the order in which they are meant."""

    role: Role
    content: str | list[Part]


class Answer(msgspec.Struct, frozen=True):
    """The message that the model wrote."""

    content: str
    role: Role = Role.ASSISTANT


def images_of(messages: list[Message]) -> list[str]:
    """Return the addresses of all images, in their order."""
    return [part.image_url.url for part in _parts(messages) if isinstance(part, ImagePart)]


def text_of(messages: list[Message]) -> list[str]:
    """Return all texts, in their order."""
    return [part.text for part in _parts(messages) if isinstance(part, TextPart)]


def _parts(messages: list[Message]) -> list[Part]:
    return [
        part
        for message in messages
        for part in ([TextPart(message.content)] if isinstance(message.content, str) else message.content)
    ]
