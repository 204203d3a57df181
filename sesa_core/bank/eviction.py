"""Which cards leave: those that hurt more than they help, and, when the bank is full, those that are worth least.

Pure. Invariant: a seed never leaves. Edge case: a card with fewer than `protected_uses` uses is spared by the cap as long as
anything else can go; among the spared the newest goes first, so that a pass can never push out what earlier passes wrote.
"""

from collections.abc import Collection, Iterable

from sesa_core.bank.tables import CAP, Tombstone
from sesa_core.cards.schema import Origin, SkillCard
from sesa_core.config.models import BankSettings

NET_SCORE = "net_score"


def harmful(cards: Iterable[SkillCard], settings: BankSettings) -> list[SkillCard]:
    """The published rule: a net score below 0 after at least `min_uses_to_evict` retrievals. Sorted by id."""
    leaving = (c for c in cards if c.origin is not Origin.SEED and c.retrieved_count >= settings.min_uses_to_evict and c.net < 0)
    return sorted(leaving, key=lambda c: c.card_id)


def over_cap(cards: Collection[SkillCard], settings: BankSettings) -> list[SkillCard]:
    """The cards that must leave so that at most `max_cards` remain; seeds are never among them. Sorted by id."""
    excess = len(cards) - settings.max_cards
    if excess <= 0:
        return []

    def rank(card: SkillCard) -> tuple[bool, int, int, str]:
        spared = card.retrieved_count < settings.protected_uses
        return (
            (True, -card.created_boundary, -card.created_step, card.card_id)
            if spared
            else (False, card.net, -card.hurt_count, card.card_id)
        )

    movable = sorted((c for c in cards if c.origin is not Origin.SEED), key=rank)
    return sorted(movable[:excess], key=lambda c: c.card_id)


def tombstone(card: SkillCard, reason: str, boundary_id: int) -> Tombstone:
    """The mark that a card leaves behind."""
    return Tombstone(tombstone_id=f"{card.card_id}@{boundary_id}", card=card, boundary_id=boundary_id, reason=reason)


def cap_tombstones(cards: Iterable[SkillCard], boundary_id: int) -> list[Tombstone]:
    return [tombstone(card, CAP, boundary_id) for card in cards]
