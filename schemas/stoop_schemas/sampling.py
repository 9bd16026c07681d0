"""The decisions of a sampler of OpenTelemetry that are known without asking it."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["SamplingRule"]

_ROOT: Final = re.compile(r"ParentBased\{root:(?:TraceIdRatioBased\{([0-9.e-]+)\}|AlwaysOffSampler),")
_DROPS: Final = ("remoteParentNotSampled:AlwaysOffSampler,", "localParentNotSampled:AlwaysOffSampler}")
_ALL: Final = 1 << 64
_LAST_BITS: Final = _ALL - 1
_NOT_KEPT: Final = frozenset("02468ace")  # the last digit of the flags, without their lowest bit


class _Sampler(Protocol):
    def get_description(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """A sampler's decisions, derived from its description because asking the sampler itself takes longer.

    With `follows`, a trace that its sender does not keep is dropped. A trace that begins here is dropped unless the
    last 64 bits of its id are below `bound`. The sampler decides about the traces that this rule does not drop.
    """

    follows: bool = False
    bound: int = _ALL

    @classmethod
    def of(cls, sampler: _Sampler | None) -> "SamplingRule":
        """Return the rule of a sampler; one that is not OpenTelemetry's own decides about every trace itself."""
        own = type(sampler).__module__ == "opentelemetry.sdk.trace.sampling"
        described = str(sampler.get_description()) if sampler is not None and own else ""
        root = _ROOT.match(described)
        bound = _ALL if root is None else round(float(root[1] or 0) * _ALL)
        return cls(described.startswith("ParentBased{") and all(part in described for part in _DROPS), bound)

    def drops_sent(self, traceparent: str) -> bool:
        """Return whether a trace with this context of its sender is dropped; only its last digit counts."""
        return self.follows and traceparent[-1:] in _NOT_KEPT

    def drops_new(self, trace_id: int) -> bool:
        """Return whether a trace that begins here with this id is dropped."""
        return trace_id & _LAST_BITS >= self.bound
