"""Compiles grammars that strangers wrote, each within bounds on time, memory and depth; `trial.py` starts it.

A line of the input is a grammar in JSON. The answer is a line in JSON: the reason why it is refused, or null. A grammar
that exceeds a bound ends the process.
"""

import json
import resource
import signal
import sys

import llguidance

__all__ = ["main"]

_SECONDS = 0.5  # of a processor for one grammar
_MEMORY = 4 << 30
_STACK = 2 << 20  # a quarter of what the engine's threads have, because the same grammar is compiled there afterwards


class _Bytes:
    """A vocabulary of single bytes and an end, in the form that llguidance takes."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([value]) for value in range(256)), b"<end>")

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def main() -> None:
    """Answer until the input ends."""
    from stoop_worker.engine.grammars.limits import limits, reason_of

    for stop in (signal.SIGINT, signal.SIGTERM):  # sent to a whole group, whose worker then finishes its jobs
        signal.signal(stop, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_AS, _MEMORY)
    _limit(resource.RLIMIT_STACK, _STACK)
    tokens = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
    print(json.dumps(None), flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # its signal ends the process
        matcher = llguidance.LLMatcher(tokens, json.loads(line), log_level=0, limits=limits())
        if not matcher.is_error():
            matcher.compute_bitmask()
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reason_of(matcher)), flush=True)


def _limit(kind: int, most: int) -> None:
    """Lower a limit to `most`, unless the system's own is lower."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
