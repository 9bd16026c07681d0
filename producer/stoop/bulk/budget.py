"""The limit on failures of a bulk run, read from `--max-failures`."""

from dataclasses import dataclass
from typing import Final

from stoop.errors import ConfigError

__all__ = ["Budget", "read_budget"]

_ENOUGH: Final = 100
"""Rows that must end before a share of failures is meaningful."""


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `count` failures or, if `count` is None, at most `share` of the rows that have ended."""

    count: int | None = None
    share: float = 1.0

    def is_spent(self, failed: int, ended: int) -> bool:
        """Return whether there are too many failures."""
        return failed > (self.share * ended if self.count is None else self.count)

    def is_hopeless(self, failed: int, ended: int) -> bool:
        """Return whether the run should stop. A share applies only once a hundred rows have ended."""
        return self.is_spent(failed, ended) and (self.count is not None or ended >= _ENOUGH)


def read_budget(text: str) -> Budget:
    """Read a count such as `50`, or a share such as `5%` or `0.05`; raises `ConfigError`."""
    try:
        if text.endswith("%"):
            return _share(float(text[:-1]) / 100)
        return Budget(count=int(text)) if text.isdecimal() else _share(float(text))
    except ValueError:
        raise ConfigError(f"--max-failures takes a count such as 50 or a share such as 5%, not {text!r}") from None


def _share(share: float) -> Budget:
    if not 0 <= share <= 1:
        raise ValueError
    return Budget(share=share)
