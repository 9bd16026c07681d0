"""Makes text legal in XML."""

import re
from typing import Final

__all__ = ["legal"]

# XML 1.0 cannot express these, not even as references
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal(text: str) -> str:
    """Return the text with U+FFFD in place of each character that XML 1.0 forbids."""
    return _ILLEGAL.sub("\ufffd", text)
