"""Which cards leave: those that do harm, and, when the bank is full, those that are worth least.

Pure. One rule of `EVICTION_RULES` says what harm is, chosen by `bank.eviction`; its name is the tombstone's reason. Invariant: a
seed never leaves, nor a card of another origin in `bank.keep_origins`. Edge case: a card with fewer than `protected_uses` uses
is spared by the cap as long as anything else can go; among the spared the newest goes first, so that a pass can never push out
what earlier passes wrote.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from sesa_core.bank.credit.uplift import harm_evidence
from sesa_core.bank.holding import Holding
from sesa_core.bank.tables import CAP, Tombstone
from sesa_core.cards.schema import Origin, SkillCard
from sesa_core.config.models import BankSettings

NET_SCORE, CREDIBLE_UPLIFT = "net_score", "credible_uplift"
_ROUNDING = 1e-9  # of weighted credits that should cancel


def net_credit(card: SkillCard, settings: BankSettings) -> float:
    """What the card has earned: its net score under uniform credit, else the difference of its weighted credits."""
    gain, loss = _accounts(settings)
    return getattr(card, gain) - getattr(card, loss)


def _accounts(settings: BankSettings) -> tuple[str, str]:
    return ("helpful_count", "hurt_count") if settings.credit == "uniform" else ("credit_helpful", "credit_hurt")


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


def _movable(cards: Holding, settings: BankSettings) -> np.ndarray:
    """(N,) True for cards that may be made to leave."""
    return ~np.isin(cards.column("origin").astype(str), [Origin.SEED.value, *settings.keep_origins])


def harmful(cards: Holding, settings: BankSettings) -> list[SkillCard]:
    """The cards that the chosen rule finds harmful after at least `min_uses_to_evict` retrievals. Sorted by id.

    No rule finds harm where the account shows no loss and the pooled uplift is not negative, so no other card is looked at.
    """
    gain, loss = (cards.column(name) for name in _accounts(settings))
    suspect = (gain < loss) | (cards.column("uplift_sum") < 0)
    tried = cards.column("retrieved_count") >= settings.min_uses_to_evict
    rule = EVICTION_RULES[settings.eviction]
    return [c for c in cards.at(np.flatnonzero(suspect & tried & _movable(cards, settings))) if rule(c, settings)]


def over_cap(cards: Holding, settings: BankSettings) -> list[SkillCard]:
    """The cards that must leave so that at most `max_cards` remain: the lowest by net credit, or by uplift where that decides.
    Sorted by id."""
    excess = len(cards) - settings.max_cards
    if excess <= 0:
        return []
    protected = cards.column("retrieved_count") < settings.protected_uses
    gain, loss = (cards.column(name) for name in _accounts(settings))
    worth = cards.column("uplift_mean") if settings.eviction == CREDIBLE_UPLIFT else gain - loss
    first = np.where(protected, -cards.column("created_boundary"), worth)
    second = np.where(protected, -cards.column("created_step"), -cards.column("hurt_count"))
    order = np.lexsort((second, first, protected))  # equal ones stay in the order of their ids
    return cards.at(sorted(order[_movable(cards, settings)[order]][:excess]))


def tombstone(card: SkillCard, reason: str, boundary_id: int) -> Tombstone:
    """The mark that a card leaves behind."""
    return Tombstone(tombstone_id=f"{card.card_id}@{boundary_id}", card=card, boundary_id=boundary_id, reason=reason)


def cap_tombstones(cards: Iterable[SkillCard], boundary_id: int) -> list[Tombstone]:
    return [tombstone(card, CAP, boundary_id) for card in cards]
