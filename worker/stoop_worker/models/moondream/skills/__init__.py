"""The skills: one object a sequence, which chooses the heads to read next and turns their values into inputs and
outputs.

text.py       queries and captions
reasoning.py  the reasoning before an answer
spatial.py    detect and point
"""

from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.request import Caption, Query, Request
from stoop_worker.engine.skill import Skill
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.skills.spatial import SpatialSkill
from stoop_worker.models.moondream.skills.text import TextSkill

__all__ = ["SpatialSkill", "TextSkill", "start_skill"]


def start_skill(
    request: Request, *, ids: TokenizerConfig, tokenizer: Tokenizer, constraint: Constraint | None = None
) -> Skill:
    """Make the skill for a request's task, at its beginning."""
    if isinstance(request.task, Query | Caption):
        return TextSkill(request, ids=ids, tokenizer=tokenizer, constraint=constraint)
    return SpatialSkill(request, ids=ids)
