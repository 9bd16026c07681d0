"""The workloads of chat models: decode steps, prompts with short answers."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from typing import Final

from benchmarks.engine.check import Checked
from benchmarks.engine.decode_rate import DecodeRate, decode_rate
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.run import closed_loop
from benchmarks.engine.workloads import Ask
from benchmarks.families.check import TOKENS, check_texts
from benchmarks.families.figure import Figure
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from benchmarks.figures import Figures
from stoop_worker.engine.request import Chat, Message, Request

__all__ = ["WORKLOADS", "check", "closed", "decodes", "prompts"]

_TEMPLATE: Final = 19  # tokens beside the message's characters
_DECODE: Final = (836, 128)  # so that the mean context is 900
_PROMPT: Final = (850, 3)
_MOST_CACHED: Final = 0.3  # all prompts begin with the same few tokens, which count in a tiny model's short ones


def check(opened: Opened) -> Checked:
    """Check the answers to as many prompts as are in flight at most."""
    asks = islice(prompts(opened.length(_DECODE[0]), TOKENS), max(opened.loads))
    return check_texts(opened, [_request(f"check-{number}", ask) for number, ask in enumerate(asks)])


def decode(opened: Opened) -> list[Figure]:
    """Time steps in which every request decodes."""
    stepping, requests = Stepping(opened.engine), decodes(opened)
    stepping.together(list(islice(requests, max(opened.loads))))
    return [_decoding("decode", decode_rate(stepping, requests, load)) for load in opened.loads]


def decodes(opened: Opened) -> Iterator[Request]:
    """Yield the requests of `decode`."""
    asks = prompts(*map(opened.length, _DECODE), first=1000)
    return (_request(f"decode-{number}", ask) for number, ask in enumerate(asks))


def prompt(opened: Opened) -> list[Figure]:
    """Time prompts of 850 tokens with answers of 3."""
    with EngineRun(opened.engine, _request) as running:
        return closed(opened, running, "prompt-850", prompts(opened.length(_PROMPT[0]), _PROMPT[1], first=10_000))


WORKLOADS: Final[Mapping[str, Callable[[Opened], list[Figure]]]] = {"decode": decode, "prompt-850": prompt}


def prompts(tokens: int, answer: int, first: int = 0) -> Iterator[Ask]:
    """Yield different prompts of `tokens` tokens, for greedy answers of `answer` tokens."""
    for number in count(first):
        text = f"{number}: ".ljust(tokens - _TEMPLATE, "?")
        yield Ask(Chat((Message("user", (text,)),)), photo=0, tokens=answer)


def closed(opened: Opened, running: EngineRun[Ask], name: str, asks: Iterator[Ask]) -> list[Figure]:
    """Keep each number of requests in flight, and return the rates."""
    arguments = opened.arguments
    running.together(list(islice(asks, max(opened.loads))))
    found = []
    for load in opened.loads:
        wanted = max(8, min(arguments.requests, arguments.requests * load // 16))
        found.append(_closed(name, closed_loop(running, asks, load, requests=wanted, seconds=arguments.seconds)))
    return found


def _request(name: str, ask: Ask) -> Request:
    return Request(name, ask.task, (), ask.sampling)


def _decoding(name: str, rate: DecodeRate) -> Figure:
    p50 = None if rate.step is None else rate.step.p50
    return Figure(name, rate.batch, rate.tokens_per_second, "tok/s", p50, {"rate": rate})


def _closed(name: str, figures: Figures) -> Figure:
    if figures.cached_share > _MOST_CACHED:
        raise RuntimeError(
            f"{name}: the cache had {figures.cached_share:.0%} of the prompts, so the times are not valid"
        )
    p50 = None if figures.latency is None else figures.latency.p50
    return Figure(name, int(figures.offered), figures.requests_per_second, "req/s", p50, {"figures": figures})
