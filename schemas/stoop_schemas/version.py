"""The version that every message carries. A reader refuses a version that it does not know."""

from typing import Literal

__all__ = ["Version", "current"]

Version = Literal[1]


def current() -> Version:
    """Return the version written into new messages.

    The messages take it as a default *factory*, because a plain default would be left out of the JSON.
    """
    return 1
