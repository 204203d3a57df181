"""`uniform`, the published rule: every card that was shown gets its problem's outcome in full, whoever earned it. Pure."""

from typing import Any

from sesa_core.bank.credit.base import Outcome, outcome
from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse


def uniform(card: SkillCard, use: CardUse) -> dict[str, Any]:
    """`credit_helpful` or `credit_hurt`, one more."""
    result = outcome(use)
    return {
        "credit_helpful": card.credit_helpful + (result is Outcome.HELPFUL),
        "credit_hurt": card.credit_hurt + (result is Outcome.HURT),
    }
