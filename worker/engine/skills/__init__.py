"""One object a sequence that knows what to read next and what to make of it."""

from worker.engine.request import Caption, Query, Request
from worker.engine.skills.protocol import Advance, Ahead, Fed, Head, Reading, Skill
from worker.engine.skills.spatial import SpatialSkill
from worker.engine.skills.text import TextSkill
from worker.model.config import TokenizerConfig
from worker.model.tokenizer import Tokenizer

__all__ = ["Advance", "Ahead", "Fed", "Head", "Reading", "Skill", "SpatialSkill", "TextSkill", "start_skill"]


def start_skill(request: Request, *, ids: TokenizerConfig, tokenizer: Tokenizer) -> Skill:
    """Make the skill for a request's task, at its beginning."""
    if isinstance(request.task, Query | Caption):
        return TextSkill(request, ids=ids, tokenizer=tokenizer)
    return SpatialSkill(request, eos_id=ids.eos_id)
