"""One card over time, from the ledger and the tombstones; and the bank's numbers at one boundary.

Pure. Invariant: everything that the ledger knows about the card is told once, in the order of boundaries. Edge case: a purged
card's history says that it was purged and what kinds of things happened, but no more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sesa_core.bank.tables import BoundaryRow, Tombstone
from sesa_core.cards.schema import SkillCard

_LAST = {"evicted": 1, "withdrawn": 1}  # after whatever else a boundary did to the card


def card_history(card_id: str, events: Iterable[Mapping[str, Any]], boundaries: Sequence[BoundaryRow]) -> list[dict[str, Any]]:
    """boundary, committed, kind, step, what (the event), by, why, details; oldest first."""
    rows = {b.boundary_id: b for b in boundaries}
    mine = [e for e in events if e["card_id"] == card_id]
    mine.sort(key=lambda e: (e["boundary_id"], _LAST.get(e["kind"], 0), e["step"] or 0, e["event_id"]))
    return [_told(e, rows[e["boundary_id"]]) for e in mine]


def _told(event: Mapping[str, Any], row: BoundaryRow) -> dict[str, Any]:
    payload = event["payload"]
    return {
        "boundary": event["boundary_id"],
        "committed": row.committed_at,
        "kind": row.kind,
        "step": event["step"],
        "what": event["kind"],
        "by": payload.get("by", ""),
        "why": payload.get("why", ""),
        "details": {k: v for k, v in payload.items() if k not in ("by", "why", "card", "tombstone")},
    }


def statistics(cards: Sequence[SkillCard], tombstones: Sequence[Tombstone]) -> dict[str, Any]:
    """The whole bank, then per category and per origin: how many cards were used, never used, helped, hurt, were evicted.

    A card helped if it did so more often than it hurt, and the other way round; `evicted` counts tombstones that still stand.
    """
    standing = [t for t in tombstones if t.lifted_boundary is None]

    def grouped(name: Callable[[SkillCard], str]) -> dict[str, dict[str, int]]:
        names = sorted({name(c) for c in cards} | {name(t.card) for t in standing})
        return {n: _numbers([c for c in cards if name(c) == n], [t for t in standing if name(t.card) == n]) for n in names}

    return {
        "bank": _numbers(cards, standing),
        "states": dict(sorted(Counter(str(c.state) for c in cards).items())),
        "evicted_by_reason": dict(sorted(Counter(t.reason for t in standing).items())),
        "lifted": len(tombstones) - len(standing),
        "categories": grouped(lambda c: c.category),
        "origins": grouped(lambda c: str(c.origin)),
    }


def _numbers(cards: Sequence[SkillCard], buried: Sequence[Tombstone]) -> dict[str, int]:
    return {
        "cards": len(cards),
        "used": sum(c.retrieved_count > 0 for c in cards),
        "never_used": sum(c.retrieved_count == 0 for c in cards),
        "helped": sum(c.net > 0 for c in cards),
        "hurt": sum(c.net < 0 for c in cards),
        "evicted": len(buried),
        "uses": sum(c.retrieved_count for c in cards),
        "uses_that_helped": sum(c.helpful_count for c in cards),
        "uses_that_hurt": sum(c.hurt_count for c in cards),
    }
