"""The methods of `LocalEngine` for recordings, which are the client's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

from stoop_schemas.transcript import SpeechOptions
from stoop_worker.local.speech import AudioSource

__all__ = ["SpeechMethods"]


class SpeechMethods(ABC):
    """The skills for recordings, built on `run`, which `LocalEngine` implements."""

    @abstractmethod
    async def run(
        self,
        skill: str,
        image: Any = None,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> dict[str, Any]:
        """Run a skill and return its answer."""

    async def transcribe(
        self,
        audio: AudioSource,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **options: Unpack[SpeechOptions],
    ) -> dict[str, Any]:
        """Transcribe speech: {"transcript": {"text", "language", "duration", "segments"[, "words"]}}.

        With `stream` the answer is {"segments": an async iterator}, whose `transcript` is set at its end.
        """
        return await self.run("transcribe", audio=audio, stream=stream, settings=settings, **options)

    async def translate(
        self,
        audio: AudioSource,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **options: Unpack[SpeechOptions],
    ) -> dict[str, Any]:
        """Translate speech into English text, otherwise like `transcribe`; `language` is the spoken one."""
        return await self.run("translate", audio=audio, stream=stream, settings=settings, **options)
