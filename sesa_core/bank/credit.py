"""What shown cards earn: the published rule, `uniform`.

Pure. A use is one problem at which a card was shown: helpful if any rollout that saw it scored, hurt if none did and at least
one was substantive, else it only counts as retrieved. Invariant: a problem counts once per card, for ever; applying the same
evidence twice changes nothing. Edge case: a use of a card that has left the bank is counted in the report and earns nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse

HALF_LIFE_STEPS = 50.0  # of the decayed counters


class Outcome(StrEnum):
    HELPFUL = "helpful"
    HURT = "hurt"
    NEUTRAL = "neutral"


def outcome(use: CardUse) -> Outcome:
    """What the use says about its card under uniform credit."""
    if any(reward > 0 for reward in use.rewards_with):
        return Outcome.HELPFUL
    return Outcome.HURT if use.rewards_with and use.substantive else Outcome.NEUTRAL


def use_key(use: CardUse) -> str:
    """The ledger's id of this use: one per card and problem."""
    return f"use/{use.card_id}/{use.problem_id}"


def credited(card: SkillCard, use: CardUse) -> SkillCard:
    """The card after one use. The decayed counters first age by the steps since the card was last retrieved."""
    result = outcome(use)
    helpful, hurt = int(result is Outcome.HELPFUL), int(result is Outcome.HURT)
    elapsed = use.step - card.last_retrieved_step if card.last_retrieved_step is not None else 0
    keep = 0.5 ** (max(0, elapsed) / HALF_LIFE_STEPS)
    changes = {
        "retrieved_count": card.retrieved_count + 1,
        "helpful_count": card.helpful_count + helpful,
        "hurt_count": card.hurt_count + hurt,
        "credit_helpful": card.credit_helpful + helpful,
        "credit_hurt": card.credit_hurt + hurt,
        "recent_retrieved": card.recent_retrieved * keep + 1,
        "recent_helpful": card.recent_helpful * keep + helpful,
        "recent_hurt": card.recent_hurt * keep + hurt,
        "last_retrieved_step": max(use.step, card.last_retrieved_step or 0),
        "policy_version": max(use.policy_version, card.policy_version),
    }
    if helpful:
        changes["last_helped_step"] = max(use.step, card.last_helped_step or 0)
    return card.model_copy(update=changes)


@dataclass(frozen=True)
class Credit:
    """The cards that were used, as they are now; the uses that counted, in order; and what did not count."""

    cards: Mapping[str, SkillCard]
    uses: tuple[CardUse, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


def apply_uses(cards: Mapping[str, SkillCard], uses: Iterable[CardUse], known: Collection[str]) -> Credit:
    """Credit `uses` to `cards`, in the order of (step, card, problem, event id); `known` holds the ledger's use keys."""
    changed: dict[str, SkillCard] = {}
    applied: list[CardUse] = []
    seen, counts = set(known), {"applied": 0, "repeated": 0, "unknown_card": 0} | {o.value: 0 for o in Outcome}
    for use in sorted(uses, key=lambda u: (u.step, u.card_id, u.problem_id, u.event_id)):
        key = use_key(use)
        if key in seen:
            counts["repeated"] += 1
        elif use.card_id not in cards:
            counts["unknown_card"] += 1
        else:
            seen.add(key)
            changed[use.card_id] = credited(changed.get(use.card_id, cards[use.card_id]), use)
            applied.append(use)
            counts["applied"] += 1
            counts[outcome(use).value] += 1
    return Credit(changed, tuple(applied), counts)
