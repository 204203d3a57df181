"""Which cards leave: those that do harm, and, when the bank is full, those that are worth least.

Pure. One rule of `EVICTION_RULES` says what harm is, chosen by `bank.eviction`; its name is the tombstone's reason. Invariant: a
seed never leaves, nor a card of another origin in `bank.keep_origins`. Edge case: a card with fewer than `protected_uses` uses
is spared by the cap as long as anything else can go; among the spared the newest goes first, so that a pass can never push out
what earlier passes wrote.
"""

import math
from collections.abc import Callable, Collection, Iterable

from sesa_core.bank.credit.uplift import harm_evidence
from sesa_core.bank.tables import CAP, Tombstone
from sesa_core.cards.schema import Origin, SkillCard
from sesa_core.config.models import BankSettings

NET_SCORE, CREDIBLE_UPLIFT = "net_score", "credible_uplift"
_ROUNDING = 1e-9  # of weighted credits that should cancel


def net_credit(card: SkillCard, settings: BankSettings) -> float:
    """What the card has earned: its net score under uniform credit, else the difference of its weighted credits."""
    return card.net if settings.credit == "uniform" else card.credit_helpful - card.credit_hurt


def has_negative_score(card: SkillCard, settings: BankSettings) -> bool:
    """The published rule."""
    return net_credit(card, settings) < -_ROUNDING


def has_credibly_negative_uplift(card: SkillCard, settings: BankSettings) -> bool:
    """Whether `eviction_confidence` leaves no doubt that the card lowers rewards. A card whose uplift is not negative is ever taken
    for harmful with a probability of at most 1 - confidence, however often it is looked at."""
    return harm_evidence(card) >= -math.log(1 - settings.eviction_confidence)


EVICTION_RULES: dict[str, Callable[[SkillCard, BankSettings], bool]] = {
    NET_SCORE: has_negative_score,
    CREDIBLE_UPLIFT: has_credibly_negative_uplift,
}


def _movable(card: SkillCard, settings: BankSettings) -> bool:
    return card.origin is not Origin.SEED and card.origin.value not in settings.keep_origins


def harmful(cards: Iterable[SkillCard], settings: BankSettings) -> list[SkillCard]:
    """The cards that the chosen rule finds harmful after at least `min_uses_to_evict` retrievals. Sorted by id."""
    rule = EVICTION_RULES[settings.eviction]
    tried = (c for c in cards if _movable(c, settings) and c.retrieved_count >= settings.min_uses_to_evict)
    return sorted((c for c in tried if rule(c, settings)), key=lambda c: c.card_id)


def over_cap(cards: Collection[SkillCard], settings: BankSettings) -> list[SkillCard]:
    """The cards that must leave so that at most `max_cards` remain: the lowest by net credit, or by uplift where that decides.
    Sorted by id."""
    excess = len(cards) - settings.max_cards
    if excess <= 0:
        return []

    def rank(card: SkillCard) -> tuple[bool, float, int, str]:
        if card.retrieved_count < settings.protected_uses:
            return (True, -card.created_boundary, -card.created_step, card.card_id)
        worth = card.uplift_mean if settings.eviction == CREDIBLE_UPLIFT else net_credit(card, settings)
        return (False, worth, -card.hurt_count, card.card_id)

    movable = sorted((c for c in cards if _movable(c, settings)), key=rank)
    return sorted(movable[:excess], key=lambda c: c.card_id)


def tombstone(card: SkillCard, reason: str, boundary_id: int) -> Tombstone:
    """The mark that a card leaves behind."""
    return Tombstone(tombstone_id=f"{card.card_id}@{boundary_id}", card=card, boundary_id=boundary_id, reason=reason)


def cap_tombstones(cards: Iterable[SkillCard], boundary_id: int) -> list[Tombstone]:
    return [tombstone(card, CAP, boundary_id) for card in cards]
