"""One window at rising temperatures, until its text is plausible: Whisper's fallback.

The limits are those of the Whisper paper (section 4.5): a text that compresses well repeats itself, and a low
log-probability means that the model guesses. A low log-probability in a window that probably holds no speech means
silence, and no temperature helps.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from stoop_worker.engine.request import Finished, Request, Window

__all__ = ["TEMPERATURES", "Attempt", "Run", "is_silent", "most_plausible"]

Run = Callable[[Request], Awaitable[Finished]]
"""Runs one request on the engine; raises if it does not finish."""

TEMPERATURES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures that are tried, the first ones first."""

_MOST_COMPRESSED: Final = 2.4
_LEAST_LOGPROB: Final = -1.0
_NO_SPEECH: Final = 0.6


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer for a window, the temperature that gave it, and the highest that was tried, the `hottest`."""

    finished: Finished
    window: Window
    temperature: float
    hottest: float


def is_silent(window: Window) -> bool:
    """Return whether the window is probably silent."""
    return window.no_speech > _NO_SPEECH and window.average_logprob < _LEAST_LOGPROB


async def most_plausible(
    request: Request, temperatures: tuple[float, ...], run: Run, spent: Callable[[Finished], None]
) -> Attempt:
    """Return the first attempt whose text is plausible or whose window is silent; without one, the likeliest.

    Texts that repeat themselves count as the likeliest only if all do. `spent` is called with every attempt.
    """
    attempts: list[Attempt] = []
    for temperature in temperatures:
        finished = await run(replace(request, sampling=replace(request.sampling, temperature=temperature)))
        assert finished.window is not None, "a transcription ends with its window"
        spent(finished)
        attempts.append(Attempt(finished, finished.window, temperature, temperature))
        if _is_plausible(finished.window) or is_silent(finished.window):
            return attempts[-1]
    varied = [attempt for attempt in attempts if attempt.window.compression_ratio <= _MOST_COMPRESSED]
    likeliest = max(varied or attempts, key=lambda attempt: attempt.window.average_logprob)
    return replace(likeliest, hottest=attempts[-1].temperature)


def _is_plausible(window: Window) -> bool:
    return window.compression_ratio <= _MOST_COMPRESSED and window.average_logprob >= _LEAST_LOGPROB
