"""Parameters of a chat request that other servers have and Stoop does not: OpenAI's own, and those of vLLM.

A parameter that changes an answer is never ignored: a caller that asks for a tool call must not receive prose instead.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["ForeignParameters", "refusal_of"]


class ForeignParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters; only a value that changes nothing is accepted."""

    n: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    logit_bias: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    best_of: Any = None
    use_beam_search: Any = None
    repetition_penalty: Any = None
    min_p: Any = None
    min_tokens: Any = None
    ignore_eos: Any = None
    stop_token_ids: Any = None
    bad_words: Any = None
    allowed_token_ids: Any = None
    prompt_logprobs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    continue_final_message: Any = None


def _one(value: Any) -> bool:
    return bool(value == 1)


def _automatic(value: Any) -> bool:
    return value in ("none", "auto")


def _never(value: Any) -> bool:
    return False


_NEUTRAL: Final[Mapping[str, Callable[[Any], bool]]] = {
    "n": _one,
    "best_of": _one,
    "repetition_penalty": _one,
    "tool_choice": _automatic,
    "function_call": _automatic,
    "modalities": lambda value: not value or value == ["text"],
    **dict.fromkeys(
        ("web_search_options", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
        _never,
    ),
}
"""Values other than null that change nothing; for a parameter that is not here, every empty value."""

_REMEDIES: Final[Mapping[str, str]] = {
    "guided_json": "give the schema in response_format",
    "guided_regex": "use regex",
    "guided_choice": "use regex, or an enum in response_format",
    "structured_outputs": "use response_format or regex",
}


def refusal_of(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter of a request that cannot be honoured, and the message about it; None without one."""
    for name in ForeignParameters.__struct_fields__:
        value = request.get(name)
        if value is not None and not _NEUTRAL.get(name, lambda given: not given)(value):
            return name, f"{name} is not supported: {_REMEDIES.get(name, 'leave it out')}"
    return None
