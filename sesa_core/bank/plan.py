"""The plan of a boundary: everything that it will write, worked out before anything is written.

Pure: the bank's state, the segment's evidence and the judge's replies decide every byte, in the order of failure ids and card
ids, never of arrival. Invariant: the bank that the plan leaves has passed the gate. Edge case: a boundary without a single
reply still credits uses, evicts and settles the queue.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sesa_core.bank.candidates import Admission, Admitted, admit
from sesa_core.bank.credit import CREDIT_RULES, Credit, apply_uses, outcome, use_key
from sesa_core.bank.eviction import cap_tombstones, harmful, over_cap, tombstone
from sesa_core.bank.failures import Settlement, settle
from sesa_core.bank.holding import Holding
from sesa_core.bank.quality import IDENTITY, GateResult, check_bank
from sesa_core.bank.rows import added_entry, card_row, event_row, evicted_entry, sizes
from sesa_core.bank.segment import BoundaryReport, JudgeCommit
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import CONSUMED, Tombstone, to_json
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import SkillCard
from sesa_core.embed.base import Embedder
from sesa_core.errors import BankError, GateFailed


@dataclass(frozen=True)
class BoundaryPlan:
    """Rows to write, by table, and ids of cards to remove."""

    boundary_id: int
    upserts: tuple[dict[str, Any], ...]
    removals: tuple[str, ...]
    tombstones: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    failures: tuple[dict[str, Any], ...]
    report: BoundaryReport
    withdrawn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids to remove from tables other than `cards`
    after: Holding | None = field(default=None, compare=False)  # the cards that these rows lead to: nothing that is written

    def content(self) -> bytes:
        """The plan as canonical bytes: equal inputs give equal bytes."""
        written = (f.name for f in fields(self) if f.name != "after")
        rows = {name: getattr(self, name) for name in written}  # `asdict` would copy every vector, number by number
        return to_json(rows | {"report": self.report.as_json()}).encode()

    @property
    def plan_hash(self) -> str:
        return hashlib.sha256(self.content()).hexdigest()


@dataclass(frozen=True)
class _Decisions:
    """What was decided, before it becomes rows. `evicted` are the tombstones of this boundary, `after` is the bank that it leaves."""

    credit: Credit
    evicted: tuple[Tombstone, ...]
    settled: Settlement
    admission: Admission
    after: Holding


def plan_boundary(state: BankState, commit: JudgeCommit, *, embedder: Embedder) -> BoundaryPlan:
    """What committing a segment, or late replies, will write. Raises GateFailed if the bank would be bad or a check could not run."""
    boundary_id, bank = state.boundary_id, commit.bank
    used = state.cards.named({u.card_id for u in commit.evidence.uses})
    credit = apply_uses(used, commit.evidence.uses, state.known_uses, CREDIT_RULES[bank.credit])
    credited = state.cards.after(credit.cards.values())
    evicted = [tombstone(c, bank.eviction, boundary_id) for c in harmful(credited, bank)]
    kept = credited.after(removed={t.card.card_id for t in evicted})
    settled = settle(state.failures, commit.evidence.failures, commit.replies, commit.failed_attempts, commit.queue, boundary_id)
    admission = admit(state, kept, evicted, settled, commit, embedder)
    full = kept.after(admission.cards, admission.vectors)
    capped = over_cap(full, bank)
    evicted += cap_tombstones([c for c in capped if kept.place(c.card_id) is not None], boundary_id)
    out = {c.card_id for c in capped}
    decisions = _Decisions(credit, tuple(evicted), settled, admission.without(out), full.after(removed=out))
    return _plan_of(state, commit, decisions, embedder)


def plan_start(state: BankState, cards: Sequence[SkillCard], *, embedder: Embedder, max_cards: int) -> BoundaryPlan:
    """Boundary 0: the cards that a run starts with (seeds, a warm start). Raises BankError for an id or content that is there twice."""
    named: dict[str, SkillCard] = {}
    contents: dict[str, str] = {}
    for card in sorted(cards, key=lambda c: c.card_id):
        twin = card.card_id if card.card_id in named else contents.get(card.content_hash)
        if twin is not None:
            raise BankError(f"cards {twin} and {card.card_id} of the start are the same (id or content)")
        contents[card.content_hash] = card.card_id
        named[card.card_id] = card.model_copy(update={"embedder": embedder.name, "run": card.run or state.run, "vector": ()})
    start = list(named.values())
    vectors = embedder.embed_cards([embedding_text(c) for c in start])  # (N, D)
    held = Holding.of(start, vectors)
    held, gates = pass_gate(held, dimension=embedder.dimension, max_cards=max_cards) if start else (held, ())
    admitted = [Admitted(c, v, "") for c, v in zip(start, vectors, strict=True)]
    report = BoundaryReport(
        boundary_id=state.boundary_id,
        kind="start",
        run=state.run,
        added=tuple(added_entry(a) for a in admitted),
        cards=sizes(held),
        gates=tuple(g.as_json() for g in gates),
    )
    rows = tuple(card_row(a.card, a.vector) for a in admitted)
    ledger = tuple(event_row("added", state.boundary_id, a.card.card_id, added_entry(a) | {"card": a.card.row()}) for a in admitted)
    return BoundaryPlan(state.boundary_id, rows, (), (), ledger, (), report, after=held)


def pass_gate(
    cards: Holding, *, dimension: int, max_cards: int, tombstoned: Collection[str] = ()
) -> tuple[Holding, tuple[GateResult, ...]]:
    """The bank that a boundary would leave, as one that the gate let pass, and what the gate said.

    A card is judged when it is new to this process or has changed; what concerns all cards together is judged each time. Raises
    GateFailed naming the first findings.
    """
    new, identities = cards.unjudged(), cards.records(IDENTITY)
    bounds = {"dimension": dimension, "max_cards": max_cards, "tombstoned": tombstoned}
    gate = check_bank(identities, new.records(), new.vectors, **bounds)
    if not gate.passed:
        shown = "; ".join(f"{f.card_id or 'the bank'}: {f.rule} ({f.value})" for f in gate.findings[:5])
        raise GateFailed(f"the bank's quality gate stopped the boundary, nothing was written: {shown or 'not every check ran'}")
    return cards.judged(), (gate,)


def _plan_of(state: BankState, commit: JudgeCommit, decisions: _Decisions, embedder: Embedder) -> BoundaryPlan:
    """The rows of everything that was decided, once the gate has passed the bank that they lead to."""
    admitted, evicted, after = decisions.admission.admitted, decisions.evicted, decisions.after
    gone = {t.card.card_id for t in evicted}
    stones = {t.card.card_id for t in (*state.tombstones, *evicted) if t.lifted_boundary is None}
    gates: tuple[GateResult, ...] = ()
    if len(after) or len(state.cards):  # a bank that was empty and stays so has nothing to judge
        after, gates = pass_gate(after, dimension=embedder.dimension, max_cards=commit.bank.max_cards, tombstoned=stones)
    changed = [c for k, c in sorted(decisions.credit.cards.items()) if k not in gone] + decisions.admission.cards
    candidates_gate = decisions.admission.gate
    report = BoundaryReport(
        boundary_id=state.boundary_id,
        kind=commit.kind,
        run=state.run,
        by=commit.by,
        why=commit.why,
        segment=commit.segment,
        attempt=commit.attempt,
        last_step=max((s.step for s in commit.evidence.steps), default=None),
        added=tuple(added_entry(a) for a in admitted),
        refused=tuple(asdict(r) for r in decisions.admission.refused),
        evicted=tuple(evicted_entry(t) for t in evicted),
        failures=dict(decisions.settled.counts),
        uses=dict(decisions.credit.counts),
        cards=sizes(after),
        gates=tuple(g.as_json() for g in ((candidates_gate,) if candidates_gate else ()) + gates),
    )
    return BoundaryPlan(
        boundary_id=state.boundary_id,
        upserts=tuple(card_row(c, after.vector(c.card_id)) for c in changed),
        removals=tuple(sorted(gone)),
        tombstones=tuple(t.row(state.cards.vector(t.card.card_id).tolist()) for t in evicted),
        events=tuple(_ledger(state.boundary_id, decisions, commit.bank.credit)),
        failures=tuple(_failure_rows(decisions)),
        report=report,
        after=after,
    )


def _ledger(boundary_id: int, decisions: _Decisions, rule: str) -> list[dict[str, Any]]:
    """Everything that happened to any card, in a fixed order: uses (priced by the credit `rule`), evictions, admissions, refusals."""
    ledger = [
        event_row("use", boundary_id, u.card_id, payload, event_id=use_key(u), problem_id=u.problem_id, step=u.step)
        for u in decisions.credit.uses
        for payload in [asdict(u) | {"outcome": outcome(u), "credit": rule}]
    ]
    ledger += [event_row("evicted", boundary_id, t.card.card_id, evicted_entry(t)) for t in decisions.evicted]
    for a in decisions.admission.admitted:
        payload = added_entry(a) | {"card": a.card.row()}
        ledger.append(
            event_row("added", boundary_id, a.card.card_id, payload, problem_id=a.card.source_problem_id, step=a.card.created_step)
        )
    for refusal in decisions.admission.refused:
        failure = decisions.settled.changed[refusal.failure_id].failure
        name = f"refused/{refusal.failure_id}@{boundary_id}"
        ledger.append(
            event_row("refused", boundary_id, "", asdict(refusal), event_id=name, problem_id=failure.problem_id, step=failure.step)
        )
    return ledger


def _failure_rows(decisions: _Decisions) -> list[dict[str, Any]]:
    """Changed failures; a consumed one says which card came of it, or why none did."""
    reasons = {a.failure_id: f"card {a.card.card_id}" for a in decisions.admission.admitted}
    reasons |= {r.failure_id: f"refused, {r.rule}: {r.reason}{f' ({r.other})' if r.other else ''}" for r in decisions.admission.refused}
    rows = []
    for key, record in decisions.settled.changed.items():
        rows.append((replace(record, reason=reasons[key]) if record.state == CONSUMED else record).row())
    return rows
