"""What a person changes in the bank, and how that becomes the plan of a boundary.

Pure. Invariant: the bank that an edition leaves has passed the same gate as a segment's, and every card that it touches has an
event that says who asked and why. Edge case: a person may empty the bank; then there is no card to judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sesa_core.bank.plan import BoundaryPlan, pass_gate
from sesa_core.bank.quality import GateResult
from sesa_core.bank.rows import card_row, event_row, sizes
from sesa_core.bank.segment import BoundaryReport
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import FailureRecord, Tombstone
from sesa_core.cards.schema import SkillCard
from sesa_core.errors import UserError


@dataclass(frozen=True)
class Person:
    """Who asks for a change, and why."""

    by: str
    why: str = ""


@dataclass(frozen=True)
class Happening:
    """One ledger event in the making. `card` is the card as it stands afterwards, None if it has left."""

    kind: str
    card_id: str
    card: SkillCard | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edition:
    """`cards` and `tombstones` are new or changed ones with their vectors (D,); what is not named stays as it is."""

    person: Person
    happenings: tuple[Happening, ...]
    cards: tuple[tuple[SkillCard, np.ndarray], ...] = ()
    removed: tuple[str, ...] = ()
    tombstones: tuple[tuple[Tombstone, np.ndarray], ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    withdrawn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids that leave other tables than `cards`
    kind: str = "person"
    report: Mapping[str, Any] = field(default_factory=dict)  # further fields of the boundary's report


def plan_edition(state: BankState, edition: Edition, *, max_cards: int, dimension: int) -> BoundaryPlan:
    """What committing the edition will write. Raises GateFailed if the bank would be bad, UserError if it would be too full."""
    vectors = {card.card_id: vector for card, vector in edition.cards}
    after = state.cards.after([card for card, _ in edition.cards], vectors, edition.removed)
    if len(after) > max_cards:
        raise UserError(f"the bank would hold {len(after)} cards and may hold {max_cards}: evict some first")
    withdrawn = set(edition.withdrawn.get("tombstones", ()))
    stones = {t.tombstone_id: t for t in state.tombstones if t.tombstone_id not in withdrawn}
    stones |= {t.tombstone_id: t for t, _ in edition.tombstones}
    buried = {t.card.card_id for t in stones.values() if t.lifted_boundary is None}
    gates: tuple[GateResult, ...] = ()
    if len(after):
        after, gates = pass_gate(after, dimension=dimension, max_cards=max_cards, tombstoned=buried)
    report = BoundaryReport(
        boundary_id=state.boundary_id,
        kind=edition.kind,
        run=state.run,
        by=edition.person.by,
        why=edition.person.why,
        changed=tuple({"card_id": h.card_id, "change": h.kind} for h in edition.happenings if h.card_id),
        cards=sizes(after),
        gates=tuple(g.as_json() for g in gates),
        **edition.report,
    )
    return BoundaryPlan(
        boundary_id=state.boundary_id,
        upserts=tuple(card_row(card, its_vector) for card, its_vector in edition.cards),
        removals=tuple(sorted(edition.removed)),
        tombstones=tuple(t.row(its_vector.tolist()) for t, its_vector in edition.tombstones),
        events=tuple(_event(state.boundary_id, h, edition.person) for h in edition.happenings),
        failures=tuple(r.row() for r in edition.failures),
        report=report,
        withdrawn=edition.withdrawn,
        after=after,
    )


def _event(boundary_id: int, happening: Happening, person: Person) -> dict[str, Any]:
    payload = {"by": person.by, "why": person.why, **happening.details}
    if happening.card is not None:
        payload["card"] = happening.card.row() | {"vector": []}
    return event_row(happening.kind, boundary_id, happening.card_id, payload)
