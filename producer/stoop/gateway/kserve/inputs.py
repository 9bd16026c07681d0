"""The table of inputs. The model's configuration in Triton, gRPC's metadata and the reading of requests follow it.

The inputs of Moondream's own Triton model come first, with the same names. Every skill ignores the inputs of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["INPUTS", "MODEL_NAME", "OUTPUT", "Datatype", "Input", "Role"]

MODEL_NAME: Final = "moondream"
"""The name under which clients find the model."""

OUTPUT: Final = "TEXT_OUTPUT"
"""The only output: BYTES of shape [1], one JSON text in each response."""

Datatype = Literal["BYTES", "BOOL", "INT32", "INT64", "FP32"]
Role = Literal["skill", "image", "audio", "model", "lane", "field", "setting"]


@dataclass(frozen=True, slots=True)
class Input:
    """One input: a tensor of shape [1], or of any length if it has `many` elements.

    `role` says where the value goes: `field` and `setting` mean the job's field or setting of the same name in lower
    case. An `as_json` input is JSON in UTF-8; other BYTES are text, except `IMAGE` and `AUDIO`.
    """

    name: str
    datatype: Datatype
    role: Role = "field"
    many: bool = False
    as_json: bool = False

    @property
    def optional(self) -> bool:
        """Return whether a request may leave it out."""
        return self.role != "skill"

    @property
    def dims(self) -> Sequence[int]:
        """The shape, as configurations write it: -1 for any length."""
        return (-1,) if self.many else (1,)


_MOONDREAM: Final = (
    Input("SKILL", "BYTES", "skill"),
    Input("QUESTION", "BYTES"),
    Input("OBJECT", "BYTES"),
    Input("IMAGE", "BYTES", "image"),
    Input("STREAM", "BOOL"),
    Input("LENGTH", "BYTES"),
    Input("TEMPERATURE", "FP32", "setting"),
    Input("TOP_P", "FP32", "setting"),
    Input("MAX_TOKENS", "INT32", "setting"),
    Input("MAX_OBJECTS", "INT32", "setting"),
    Input("REASONING", "BOOL"),
    Input("SPATIAL_REFS", "BYTES", as_json=True),
)

_STOOP: Final = (
    Input("MODEL", "BYTES", "model"),
    Input("LANE", "BYTES", "lane"),
    Input("DEADLINE", "INT64"),
    Input("SEED", "INT64", "setting"),
    Input("TOP_K", "INT32", "setting"),
    Input("STOP", "BYTES", "setting", many=True),
    Input("PRESENCE_PENALTY", "FP32", "setting"),
    Input("FREQUENCY_PENALTY", "FP32", "setting"),
    Input("RESPONSE_FORMAT", "BYTES", "setting", as_json=True),
    Input("REGEX", "BYTES", "setting"),
    Input("MIN_PIXELS", "INT32", "setting"),
    Input("MAX_PIXELS", "INT32", "setting"),
    Input("ADAPTER", "BYTES", "setting"),
    Input("MESSAGES", "BYTES", as_json=True),
    Input("DATE", "BYTES"),
    Input("INPUT", "BYTES", many=True),
    Input("PROMPT_NAME", "BYTES"),
    Input("DIMENSIONS", "INT32"),
    Input("KINDS", "BYTES", many=True),
    Input("QUERY", "BYTES"),
    Input("DOCUMENTS", "BYTES", many=True),
    Input("TRUNCATE", "BOOL"),
    Input("AUDIO", "BYTES", "audio"),
    Input("LANGUAGE", "BYTES"),
    Input("PROMPT", "BYTES"),
    Input("TIMESTAMPS", "BYTES"),
    Input("VAD", "BOOL"),
    Input("PARALLEL", "BOOL"),
)

INPUTS: Final[Mapping[str, Input]] = MappingProxyType({each.name: each for each in (*_MOONDREAM, *_STOOP)})
"""Every input by its name."""
