"""The one place where the bank changes: recover, plan, write, pin.

Invariant: a boundary exists exactly if its row in `boundaries` does. Data tables are written first, then tagged, then the row
is inserted by compare-and-set; whatever a crash leaves behind lies ahead of the last row's pins and `recover` takes it back.
That holds for every kind of boundary: a segment's, a person's edit, a restore, a compaction, a purge, a migration.
`distillations` is not pinned and never taken back. Edge case: a segment's commit that is repeated after its row was written
changes nothing and gives the stored report again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sesa_core.bank.credit import use_key
from sesa_core.bank.plan import BoundaryPlan, plan_boundary, plan_start
from sesa_core.bank.rows import event_row
from sesa_core.bank.segment import BoundaryReport, JudgeCommit, SegmentCommit
from sesa_core.bank.store import LANCE_ERRORS, BankStore, first_line
from sesa_core.bank.tables import KEYS, PINNED, BoundaryRow
from sesa_core.bank.writes import AfterWrite, Change, follow, migrate, no_callback, write_rows
from sesa_core.cards.schema import SCHEMA_VERSION, SkillCard
from sesa_core.errors import BankError, BoundaryConflict

__all__ = [
    "BoundaryReport",
    "SegmentCommit",
    "commit",
    "commit_judged",
    "commit_plan",
    "commit_segment",
    "initialise",
    "plan_boundary",
    "read_plan",
    "recover",
]

EMPTY_VERSION = 1  # of a table that was created and never written


def recover(store: BankStore) -> list[str]:
    """Take back what no boundary pins; bring an older schema to today's. Call it before anything is written.

    Returns the names of the tables that were ahead. Raises BoundaryConflict if another writer is at work this moment.
    """
    _require_writer(store)
    last = store.last_boundary()
    standing, restored = {}, []
    for name in PINNED:
        table, pinned = store.table(name), last.versions[name] if last is not None else EMPTY_VERSION
        standing[name] = table.version
        if table.version != pinned:
            table.restore(pinned)
            standing[name] = follow(name, standing[name], table.version)
            restored.append(name)
    store.standing = standing
    if last is not None and last.schema_version < SCHEMA_VERSION:
        _migrate(store, last)
        recover(store)
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
    after_write: AfterWrite = no_callback,
) -> BoundaryRow:
    """Commit boundary 0 with the cards that a run starts from. A bank that has it already keeps it."""
    recover(store)
    first = next(iter(store.boundaries()), None)
    if first is not None:
        return first
    plan = plan_start(store.read_state(), cards, embedder=store.embedder, max_cards=max_cards)
    row = _row(store, plan.report, plan.plan_hash, config_hash, checkpoints=checkpoints, metrics=metrics or {}, rng=rng or {})
    return _write_plan(store, row, plan, after_write)


def commit_segment(store: BankStore, commit: SegmentCommit, *, after_write: AfterWrite = no_callback) -> BoundaryReport:
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
    recorded = {"checkpoints": commit.checkpoints, "metrics": commit.metrics, "rng": commit.rng}
    row = _row(store, plan.report, plan.plan_hash, commit.config_hash, **recorded)
    return _report(_write_plan(store, row, plan, after_write))


def commit_judged(store: BankStore, commit: JudgeCommit, *, after_write: AfterWrite = no_callback) -> BoundaryReport:
    """Commit a boundary for replies that came late; `recover` is called first. The policies stay those of the boundary before.

    Raises as `commit_segment` does.
    """
    recover(store)
    return commit_plan(store, read_plan(store, commit), after_write=after_write)


def commit_plan(store: BankStore, plan: BoundaryPlan, *, after_write: AfterWrite = no_callback) -> BoundaryReport:
    """Commit what a person planned on the bank as `recover` left it. The policies stay those of the boundary before.

    Raises as `commit_segment` does.
    """
    return _report(_write_plan(store, _next_row(store, plan.report, plan.plan_hash), plan, after_write))


def commit(store: BankStore, report: BoundaryReport, change: Change, *, after_write: AfterWrite = no_callback) -> BoundaryReport:
    """Commit any change of the data tables as the boundary that `report` speaks of; `recover` first."""
    return _report(_write(store, _next_row(store, report), change, after_write))


def read_plan(store: BankStore, commit: JudgeCommit) -> BoundaryPlan:
    """The plan of committing this segment, or these late replies, on the bank as it stands; nothing is written."""
    if store.last_boundary() is None:
        raise BankError(f"the bank in {store.uri} has no boundary 0 yet; `initialise` makes it")
    if commit.segment is not None and (commit.evidence.segment, commit.evidence.attempt) != (commit.segment, commit.attempt):
        raise BankError(f"the evidence is of segment {commit.evidence.segment}, attempt {commit.evidence.attempt}: not this commit's")
    mentioned = {f.failure_id for f in commit.evidence.failures} | {r.failure_id for r in commit.replies}
    uses = {use_key(u) for u in commit.evidence.uses}
    state = store.read_state(failure_ids=mentioned, use_keys=uses)
    return plan_boundary(state, commit, embedder=store.embedder)


def _require_writer(store: BankStore) -> None:
    if not store.write:
        raise BankError(f"the bank in {store.uri} was opened for reading")


def _migrate(store: BankStore, last: BoundaryRow) -> None:
    """The boundary that brings an older schema to today's."""
    versions = {"from": last.schema_version, "to": SCHEMA_VERSION}
    report = BoundaryReport(last.boundary_id + 1, "migrate", store.run, cards=last.report.get("cards", {}), details=versions)
    commit(store, report, migrate(event_row("migrated", report.boundary_id, "", versions)))


def _next_row(store: BankStore, report: BoundaryReport, plan_hash: str = "") -> BoundaryRow:
    """The row of a boundary that leaves the policies where they are."""
    last = store.last_boundary()
    if last is None:
        raise BankError(f"the bank in {store.uri} has no boundary 0 yet; `initialise` makes it")
    return _row(store, report, plan_hash, last.config_hash, checkpoints=last.checkpoints, rng=last.rng)


def _row(store: BankStore, report: BoundaryReport, plan_hash: str, config_hash: str, **recorded: Mapping[str, Any]) -> BoundaryRow:
    return BoundaryRow(
        boundary_id=report.boundary_id,
        kind=report.kind,
        tag=store.tag(report.boundary_id),
        run=store.run,
        owner=store.owner,
        committed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config_hash=config_hash,
        plan_hash=plan_hash,
        embedder=store.embedder.name,
        dimension=store.embedder.dimension,
        schema_version=SCHEMA_VERSION,
        versions={},
        segment=report.segment,
        attempt=report.attempt,
        report=report.as_json(),
        **recorded,
    )


def _write_plan(store: BankStore, row: BoundaryRow, plan: BoundaryPlan, after_write: AfterWrite) -> BoundaryRow:
    """Write a plan's rows; the next reader of these cards in this process need not read them again."""
    row = _write(store, row, write_rows(plan), after_write)
    if plan.after is not None:
        store.keep_at_hand(row, plan.after)
    return row


def _write(store: BankStore, row: BoundaryRow, change: Change, after_write: AfterWrite) -> BoundaryRow:
    """Data tables, tags, then the row: the order is the protocol."""
    _require_writer(store)
    if store.standing is None:
        raise BankError("a boundary is written on what `recover` left; call it first")
    try:
        written = change(store, after_write)
        row = replace(row, versions=written.versions)
        for each in (*written.moved, row):
            _place_tags(store, each, after_write)
        inserted = _insert(store, row, written.moved)
    except LANCE_ERRORS as error:
        raise BankError(
            f"{store.uri}: boundary {row.boundary_id} could not be written ({first_line(error)}); nothing was committed"
        ) from error
    finally:
        store.standing = None
    if not inserted:
        raise BoundaryConflict(f"boundary {row.boundary_id} was committed by another writer; recover and read it")
    after_write("boundary")
    return row


def _place_tags(store: BankStore, row: BoundaryRow, after_write: AfterWrite) -> None:
    for name in PINNED:
        table = store.table(name)
        # a tag of this name is what a killed commit left behind, or points to what was just rewritten
        place = table.tags.update if row.tag in table.tags.list() else table.tags.create
        place(row.tag, row.versions[name])
        after_write(f"tag:{name}")


def _insert(store: BankStore, row: BoundaryRow, moved: Sequence[BoundaryRow]) -> bool:
    """The atomic point: the new row, if its id is free, and earlier rows whose pins moved, in one write."""
    boundaries = store.table("boundaries")
    insert = boundaries.merge_insert(KEYS["boundaries"]).when_not_matched_insert_all()
    if moved:
        insert = insert.when_matched_update_all(where=f"target.boundary_id < {row.boundary_id}")
    rows = pa.Table.from_pylist([r.row() for r in (*moved, row)], schema=boundaries.schema)
    return insert.execute(rows).num_inserted_rows == 1


def _report(row: BoundaryRow) -> BoundaryReport:
    return replace(BoundaryReport.of(row.report), tag=row.tag, versions=dict(row.versions))
