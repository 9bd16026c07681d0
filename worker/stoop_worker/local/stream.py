"""The text of an answer, piece by piece."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from stoop_schemas.result import Result
from stoop_worker.engine.request import Finished, Output, ReasoningDelta, TextDelta

__all__ = ["LocalText"]


class LocalText:
    """The pieces of one answer as they arrive; iterate it once.

    `reasoning` is {"text", "grounding"}: the text is complete once the answer begins, and the grounding once the stream
    has ended. Then `result` has the metrics.
    """

    def __init__(self, outputs: AsyncGenerator[Output, None], complete: Callable[[Finished], Result]) -> None:
        self.reasoning: dict[str, Any] = {"text": "", "grounding": []}
        self.result: Result | None = None
        self._outputs = outputs
        self._complete = complete
        self._waiting: list[str] = []

    async def skip_reasoning(self) -> None:
        """Wait until the answer begins, so that `reasoning["text"]` is complete."""
        while not self._waiting and self.result is None:
            await self._read()

    def __aiter__(self) -> "LocalText":
        return self

    async def __anext__(self) -> str:
        while not self._waiting:
            if self.result is not None:
                raise StopAsyncIteration
            await self._read()
        return self._waiting.pop(0)

    async def aclose(self) -> None:
        """End the request if it runs; idempotent."""
        await self._outputs.aclose()

    async def _read(self) -> None:
        output = await anext(self._outputs)
        match output:
            case TextDelta(text=text):
                self._waiting.append(text)
            case ReasoningDelta(text=text):
                self.reasoning["text"] += text
            case Finished():
                await self._outputs.aclose()
                self.result = self._complete(output)
                if self.result.output is not None and self.result.output.reasoning is not None:
                    self.reasoning.update(msgspec.to_builtins(self.result.output.reasoning))
