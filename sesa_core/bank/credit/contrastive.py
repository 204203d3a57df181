"""`contrastive`: a card earns the difference that it makes, between the rollouts of a group that saw it and those that did not.

Pure. `credit_helpful` and `credit_hurt` add up the gains and the losses in mean reward; `uplift_*` pool the same comparisons
into an estimate with its uncertainty (`credit.uplift`). Edge case: a problem at which all or no rollout saw the card compares
nothing; it counts as a use and earns no credit.
"""

from typing import Any

from sesa_core.bank.credit.base import kept_share
from sesa_core.bank.credit.uplift import compare, pooled
from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse


def contrastive(card: SkillCard, use: CardUse) -> dict[str, Any]:
    """Gains, losses and the pooled uplift after one more comparison; the decayed one ages in any case."""
    kept, found = kept_share(card, use), compare(use)
    recent_sum, recent_weight = card.recent_uplift_sum * kept, card.recent_uplift_weight * kept
    if found is None:
        return {"recent_uplift_sum": recent_sum, "recent_uplift_weight": recent_weight}
    return pooled(card, found) | {
        "credit_helpful": card.credit_helpful + max(found.difference, 0.0),
        "credit_hurt": card.credit_hurt + max(-found.difference, 0.0),
        "recent_uplift_sum": recent_sum + found.weight * found.difference,
        "recent_uplift_weight": recent_weight + found.weight,
    }
