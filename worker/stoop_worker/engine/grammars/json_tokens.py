"""A tokenizer.json without the tokens that no JSON contains, so that a mask walks fewer of them.

Each new state of a string costs a walk over all tokens with a quote, a backslash or a control character. In real
vocabularies most of these are ends of lines of programs, such as `);` and a line break, which no JSON can contain.
"""

import json
import re
from typing import Any, Final

__all__ = ["without_other_tokens"]

# Byte-level tokenizers spell a byte as one character: the printable ones of ASCII as they are, the control characters
# 00 to 1F as U+0100 to U+011F, and the space as U+0120.
_NEVER: Final = "\u0100\u0100"
"""The spelling of two zero bytes, with which nothing allowed begins."""

_REST: Final = r'(?:[^"\\\u0100-\u011f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*'  # of a string, without an end
_CUT: Final = r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?"  # an escape that goes on in the next token
_BETWEEN: Final = r"[\[\]{}:,\u0109\u010a\u010d\u0120\-+.0-9a-zA-Z]*"  # strings: numbers, literals and marks
_FROM_BETWEEN: Final = rf'{_BETWEEN}(?:"{_REST}"{_BETWEEN})*(?:"{_REST}{_CUT})?'
_FROM_STRING: Final = rf'{_REST}(?:{_CUT}|"{_FROM_BETWEEN})'
_FROM_ESCAPE: Final = rf'(?:["\\/bfnrt]|u?[0-9a-fA-F]{{1,4}}){_FROM_STRING}|u'
_POSSIBLE: Final = re.compile(rf"(?:{_FROM_BETWEEN}|{_FROM_STRING}|{_FROM_ESCAPE})\Z")


def without_other_tokens(document: str) -> str:
    """Return a tokenizer.json in which the tokens that occur in no JSON have spellings that no grammar allows.

    All ids stay as they are, and so do the tokens of any JSON. A single byte always stays. A tokenizer that does not
    work on bytes is returned as it is.
    """
    parsed: dict[str, Any] = json.loads(document)
    model = parsed["model"]
    if model.get("type") != "BPE" or '"ByteLevel"' not in json.dumps(parsed.get("decoder")):
        return document
    vocabulary: dict[str, int] = model["vocab"]
    kept = {token["content"] for token in parsed.get("added_tokens") or ()}
    others = {each for each in vocabulary if len(each) > 1 and each not in kept and _POSSIBLE.match(each) is None}
    model["vocab"] = {f"{_NEVER}{id}" if each in others else each: id for each, id in vocabulary.items()}
    # the parts of a possible token are possible too, so no merge that is left needs one of the others
    model["merges"] = [pair for pair in model["merges"] if others.isdisjoint(_parts(pair))]
    return json.dumps(parsed, ensure_ascii=False)


def _parts(pair: str | list[str]) -> tuple[str, str, str]:
    """Return the two tokens of a merge and the merged one."""
    first, second = pair.split(" ") if isinstance(pair, str) else pair
    return first, second, first + second
