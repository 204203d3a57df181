"""How decisions become what a boundary writes and says: a card's row, a ledger event, the entries of a report.

Pure. Invariant: an event's id follows from its kind, its card and its boundary, so that writing it twice changes nothing.
Edge case: an event that concerns no single card has an empty `card_id`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sesa_core.bank.candidates import Admitted
from sesa_core.bank.holding import Holding
from sesa_core.bank.tables import Tombstone, to_json
from sesa_core.cards.schema import CardState, SkillCard

PURGED = {"purged": True}  # what is left of the payload of a purged card's event
SHOWN_COUNTERS = ("retrieved_count", "helpful_count", "hurt_count")


def card_row(card: SkillCard, vector: np.ndarray) -> dict[str, Any]:
    """A row of `cards`; `vector` is (D,)."""
    return card.row() | {"vector": vector.tolist()}


def sizes(cards: Holding) -> dict[str, int]:
    return {"total": len(cards), "active": int((cards.column("state") == CardState.ACTIVE).sum())}


def added_entry(admitted: Admitted) -> dict[str, Any]:
    card = admitted.card
    shown = {n: getattr(card, n) for n in ("card_id", "category", "pattern", "source_problem_id")}
    return shown | {"trigger_keywords": list(card.trigger_keywords), "queries": list(card.queries), "failure_id": admitted.failure_id}


def evicted_entry(stone: Tombstone) -> dict[str, Any]:
    card = stone.card
    counters = {n: getattr(card, n) for n in (*SHOWN_COUNTERS, "net", "uplift_mean", "uplift_n")}
    return {"card_id": card.card_id, "reason": stone.reason, "tombstone_id": stone.tombstone_id, "pattern": card.pattern} | counters


def event_row(
    kind: str,
    boundary_id: int,
    card_id: str,
    payload: Mapping[str, Any],
    *,
    event_id: str = "",
    problem_id: str = "",
    step: int | None = None,
) -> dict[str, Any]:
    """A row of `events`."""
    return {
        "event_id": event_id or f"{kind}/{card_id}@{boundary_id}",
        "kind": kind,
        "boundary_id": boundary_id,
        "card_id": card_id,
        "problem_id": problem_id,
        "payload": to_json(payload),
        "step": step,
    }
