"""Uses of cards become credit: what is the same under every rule.

Pure. A use is one problem at which a card was shown: helpful if any rollout that saw it scored, hurt if none did and at least
one was substantive, else it only counts as retrieved. These counters are kept as published whatever the rule; a rule adds
fields of its own. Invariant: a problem counts once per card, for ever; the same evidence again, or in another order, changes
nothing. Edge case: a use of a card that has left the bank is counted in the report and earns nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse

HALF_LIFE_STEPS = 50.0  # of the decayed counters


class Outcome(StrEnum):
    HELPFUL = "helpful"
    HURT = "hurt"
    NEUTRAL = "neutral"


class CreditRule(Protocol):
    """How one use is priced: the rule's own fields of the card, as they are after it. Pure; the shared counters are not its concern."""

    def __call__(self, card: SkillCard, use: CardUse) -> dict[str, Any]: ...


def outcome(use: CardUse) -> Outcome:
    """What the use says about its card, as published."""
    if any(reward > 0 for reward in use.rewards_with):
        return Outcome.HELPFUL
    return Outcome.HURT if use.rewards_with and use.substantive else Outcome.NEUTRAL


def use_key(use: CardUse) -> str:
    """The ledger's id of this use: one per card and problem."""
    return f"use/{use.card_id}/{use.problem_id}"


def kept_share(card: SkillCard, use: CardUse) -> float:
    """What is left of the card's decayed counters, in (0, 1]: they age by the steps since it was last retrieved."""
    elapsed = use.step - card.last_retrieved_step if card.last_retrieved_step is not None else 0
    return 0.5 ** (max(0, elapsed) / HALF_LIFE_STEPS)


def credited(card: SkillCard, use: CardUse, rule: CreditRule) -> SkillCard:
    """The card after one use."""
    result, kept = outcome(use), kept_share(card, use)
    helpful, hurt = int(result is Outcome.HELPFUL), int(result is Outcome.HURT)
    changes = {
        "retrieved_count": card.retrieved_count + 1,
        "helpful_count": card.helpful_count + helpful,
        "hurt_count": card.hurt_count + hurt,
        "recent_retrieved": card.recent_retrieved * kept + 1,
        "recent_helpful": card.recent_helpful * kept + helpful,
        "recent_hurt": card.recent_hurt * kept + hurt,
        "last_retrieved_step": max(use.step, card.last_retrieved_step or 0),
        "policy_version": max(use.policy_version, card.policy_version),
    }
    if helpful:
        changes["last_helped_step"] = max(use.step, card.last_helped_step or 0)
    return card.model_copy(update=changes | rule(card, use))


@dataclass(frozen=True)
class Credit:
    """The cards that were used, as they are now; the uses that counted, in order; and what did not count."""

    cards: Mapping[str, SkillCard]
    uses: tuple[CardUse, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


def apply_uses(cards: Mapping[str, SkillCard], uses: Iterable[CardUse], known: Collection[str], rule: CreditRule) -> Credit:
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
            changed[use.card_id] = credited(changed.get(use.card_id, cards[use.card_id]), use, rule)
            applied.append(use)
            counts["applied"] += 1
            counts[outcome(use).value] += 1
    return Credit(changed, tuple(applied), counts)
