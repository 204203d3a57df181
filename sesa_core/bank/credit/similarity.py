"""`similarity`: a card gets its problem's outcome by as much as it was about the question.

Pure. The weight is the cosine similarity at which the card was shown. Edge case: a card that was shown at a negative
similarity (no floor) earns nothing, rather than the opposite.
"""

from typing import Any

from sesa_core.bank.credit.base import Outcome, outcome
from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse


def similarity(card: SkillCard, use: CardUse) -> dict[str, Any]:
    """`credit_helpful` or `credit_hurt`, more by the similarity, in [0, 1]."""
    result, weight = outcome(use), min(max(use.similarity, 0.0), 1.0)
    return {
        "credit_helpful": card.credit_helpful + weight * (result is Outcome.HELPFUL),
        "credit_hurt": card.credit_hurt + weight * (result is Outcome.HURT),
    }
