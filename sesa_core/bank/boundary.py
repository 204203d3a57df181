"""The one place where the bank changes: recover, plan, write, pin.

Invariant: a boundary exists exactly if its row in `boundaries` does. Data tables are written first, then tagged, then the row
is inserted by compare-and-set; whatever a crash leaves behind lies ahead of the last row's pins and `recover` takes it back.
`distillations` is not pinned and never taken back. Edge case: a commit that is repeated after its row was written changes
nothing and gives the stored report again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sesa_core.bank.credit import use_key
from sesa_core.bank.plan import BoundaryPlan, plan_boundary, plan_start
from sesa_core.bank.replies import quoted
from sesa_core.bank.segment import BoundaryReport, SegmentCommit
from sesa_core.bank.store import BankStore
from sesa_core.bank.tables import KEYS, PINNED, BoundaryRow
from sesa_core.cards.schema import SCHEMA_VERSION, SkillCard
from sesa_core.errors import BankError, BoundaryConflict

__all__ = ["BoundaryReport", "SegmentCommit", "commit_segment", "initialise", "plan_boundary", "read_plan", "recover"]

EMPTY_VERSION = 1  # of a table that was created and never written
AfterWrite = Callable[[str], None]


def _no_callback(name: str) -> None:
    """The usual `after_write`: nothing happens between two writes."""


def recover(store: BankStore) -> list[str]:
    """Take back what no boundary pins. Returns the names of the tables that were ahead; call it before anything is written."""
    _require_writer(store)
    last = store.last_boundary()
    restored = []
    for name in PINNED:
        table, pinned = store.table(name), last.versions[name] if last is not None else EMPTY_VERSION
        if table.version != pinned:
            table.restore(pinned)
            restored.append(name)
    return restored


def initialise(
    store: BankStore,
    cards: Sequence[SkillCard],
    *,
    checkpoints: Mapping[str, Any],
    config_hash: str,
    metrics: Mapping[str, Any] | None = None,
    rng: Mapping[str, Any] | None = None,
    max_cards: int = 800,
    after_write: AfterWrite = _no_callback,
) -> BoundaryRow:
    """Commit boundary 0 with the cards that a run starts from. A bank that has it already keeps it."""
    recover(store)
    first = next(iter(store.boundaries()), None)
    if first is not None:
        return first
    plan = plan_start(store.read_state(), cards, embedder=store.embedder, max_cards=max_cards)
    row = _row(store, plan, config_hash=config_hash, checkpoints=checkpoints, metrics=metrics or {}, rng=rng or {})
    return _write(store, plan, row, after_write)


def commit_segment(store: BankStore, commit: SegmentCommit, *, after_write: AfterWrite = _no_callback) -> BoundaryReport:
    """Commit a segment's boundary, once: a repeated call returns the first one's report.

    `after_write` is called with a name after each single write. Raises GateFailed (nothing was written), BoundaryConflict (the
    boundary, or another attempt at this segment, is already there), BankError.
    """
    recover(store)
    earlier = next((r for r in store.boundaries() if r.kind == "segment" and r.segment == commit.segment), None)
    if earlier is not None:
        if earlier.attempt != commit.attempt:
            raise BoundaryConflict(f"segment {commit.segment} was committed by attempt {earlier.attempt}, not {commit.attempt}")
        return _report(earlier)
    plan = read_plan(store, commit)
    row = _row(store, plan, config_hash=commit.config_hash, checkpoints=commit.checkpoints, metrics=commit.metrics, rng=commit.rng)
    return _report(_write(store, plan, row, after_write))


def read_plan(store: BankStore, commit: SegmentCommit) -> BoundaryPlan:
    """The plan of committing this segment on the bank as it stands; nothing is written."""
    if store.last_boundary() is None:
        raise BankError(f"the bank in {store.uri} has no boundary 0 yet; `initialise` makes it")
    if (commit.evidence.segment, commit.evidence.attempt) != (commit.segment, commit.attempt):
        raise BankError(f"the evidence is of segment {commit.evidence.segment}, attempt {commit.evidence.attempt}: not this commit's")
    mentioned = {f.failure_id for f in commit.evidence.failures} | {r.failure_id for r in commit.replies}
    uses = {use_key(u) for u in commit.evidence.uses}
    state = store.read_state(failure_ids=mentioned, use_keys=uses)
    return plan_boundary(state, commit, embedder=store.embedder)


def _require_writer(store: BankStore) -> None:
    if not store.write:
        raise BankError(f"the bank in {store.uri} was opened for reading")


def _row(store: BankStore, plan: BoundaryPlan, *, config_hash: str, **recorded: Mapping[str, Any]) -> BoundaryRow:
    report = plan.report
    return BoundaryRow(
        boundary_id=plan.boundary_id,
        kind=report.kind,
        tag=store.tag(plan.boundary_id),
        run=store.run,
        owner=store.owner,
        committed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config_hash=config_hash,
        plan_hash=plan.plan_hash,
        embedder=store.embedder.name,
        dimension=store.embedder.dimension,
        schema_version=SCHEMA_VERSION,
        versions={},
        segment=report.segment,
        attempt=report.attempt,
        report=report.as_json(),
        **recorded,
    )


def _write(store: BankStore, plan: BoundaryPlan, row: BoundaryRow, after_write: AfterWrite) -> BoundaryRow:
    """Data tables, tags, then the row: the order is the protocol."""
    tables = {name: store.table(name) for name in PINNED}
    additions = {"failures": plan.failures, "cards": plan.upserts, "tombstones": plan.tombstones, "events": plan.events}
    for name, rows in additions.items():
        if rows:
            upsert = tables[name].merge_insert(KEYS[name]).when_matched_update_all().when_not_matched_insert_all()
            upsert.execute(pa.Table.from_pylist(list(rows), schema=tables[name].schema))
            after_write(name)
    if plan.removals:
        tables["cards"].delete(f"card_id IN {quoted(plan.removals)}")
        after_write("removals")
    versions = {name: table.version for name, table in tables.items()}
    for name, table in tables.items():
        # a tag of this name can only be what a killed commit left behind
        place = table.tags.update if row.tag in table.tags.list() else table.tags.create
        place(row.tag, versions[name])
        after_write(f"tag:{name}")
    row = replace(row, versions=versions)
    boundaries = store.table("boundaries")
    insert = boundaries.merge_insert(KEYS["boundaries"]).when_not_matched_insert_all()
    if insert.execute(pa.Table.from_pylist([row.row()], schema=boundaries.schema)).num_inserted_rows != 1:
        raise BoundaryConflict(f"boundary {row.boundary_id} was committed by another writer; recover and read it")
    after_write("boundary")
    return row


def _report(row: BoundaryRow) -> BoundaryReport:
    return replace(BoundaryReport.of(row.report), tag=row.tag, versions=dict(row.versions))
