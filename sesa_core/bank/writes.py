"""What each kind of boundary does to the data tables. Called by `boundary` alone, before it tags and pins.

A `Change` takes the store as `recover` left it and returns the version at which each pinned table stands now. Invariant: a write
lands right on top of what was read; where it does not, another writer is at work and nothing is pinned (an object store has no
file lock). Edge case: a change that rewrites history also returns the earlier boundaries with their new pins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sesa_core.bank.plan import BoundaryPlan
from sesa_core.bank.replies import quoted
from sesa_core.bank.store import LANCE_ERRORS, BankStore, first_line
from sesa_core.bank.tables import KEYS, PINNED, BoundaryRow, schemas
from sesa_core.errors import BankError, BoundaryConflict

AfterWrite = Callable[[str], None]
Scrub = Callable[[str, pa.Table], pa.Table]  # (name, rows) -> the same object if there is nothing to scrub


def no_callback(name: str) -> None:
    """The usual `after_write`: nothing happens between two writes."""


@dataclass(frozen=True)
class Written:
    """`versions` are the new boundary's pins; `moved` earlier boundaries whose pins are others now."""

    versions: Mapping[str, int]
    moved: tuple[BoundaryRow, ...] = ()


Change = Callable[[BankStore, AfterWrite], Written]


def follow(name: str, before: int, after: int) -> int:
    """The version after one write. Raises BoundaryConflict if it does not follow the one that was read."""
    if after != before + 1:
        raise BoundaryConflict(f"another writer is changing table {name}; nothing was committed, try again when it has ended")
    return after


def write_rows(plan: BoundaryPlan) -> Change:
    """The usual change: the rows of a plan."""
    additions = {"failures": plan.failures, "cards": plan.upserts, "tombstones": plan.tombstones, "events": plan.events}

    def change(store: BankStore, after_write: AfterWrite) -> Written:
        versions = dict(store.standing)
        for name, rows in additions.items():
            if rows:
                table = store.table(name)
                upsert = table.merge_insert(KEYS[name]).when_matched_update_all().when_not_matched_insert_all()
                result = upsert.execute(pa.Table.from_pylist(list(rows), schema=table.schema))
                versions[name] = follow(name, versions[name], result.version)
                after_write(name)
        for name, ids in {"cards": plan.removals, **plan.withdrawn}.items():
            if ids:
                result = store.table(name).delete(f"{KEYS[name]} IN {quoted(ids)}")
                versions[name] = follow(name, versions[name], result.version)
                after_write("removals" if name == "cards" else f"removals:{name}")
        return Written(versions)

    return change


def compact(event: Mapping[str, Any]) -> Change:
    """Small files become one; the content stays the same, but for the ledger's `event`."""

    def change(store: BankStore, after_write: AfterWrite) -> Written:
        versions = dict(store.standing)
        for name in PINNED:
            table, before = store.table(name), store.pinned(name)
            table.to_lance().optimize.compact_files()
            versions[name] = table.version
            after_write(f"compact:{name}")
            if not table.to_arrow().sort_by(KEYS[name]).equals(before):
                raise BoundaryConflict(f"another writer is changing table {name}; nothing was committed, try again when it has ended")
        events = store.table("events")
        result = events.add(pa.Table.from_pylist([dict(event)], schema=events.schema))
        versions["events"] = follow("events", versions["events"], result.version)
        after_write("events")
        return Written(versions)

    return change


def migrate(event: Mapping[str, Any]) -> Change:
    """Every pinned table is written anew under today's schema; `store.pinned` reads the older one."""

    def change(store: BankStore, after_write: AfterWrite) -> Written:
        versions, today = dict(store.standing), schemas(store.embedder.dimension)
        for name in PINNED:
            rows = store.pinned(name)
            if name == "events":
                rows = pa.concat_tables([rows, pa.Table.from_pylist([dict(event)], schema=today[name])])
            result = store.table(name).add(rows.cast(today[name]), mode="overwrite")
            versions[name] = follow(name, versions[name], result.version)
            after_write(name)
        return Written(versions)

    return change


def rewrite_history(
    rows: tuple[BoundaryRow, ...], scrub: Scrub, scrub_report: Callable[[BoundaryRow], BoundaryRow], event: Mapping[str, Any]
) -> Change:
    """Every version that `rows` (by id, the newest last) pin is written again without what `scrub` takes out; then the ledger
    takes in `event`."""

    def change(store: BankStore, after_write: AfterWrite) -> Written:
        versions, moved = dict(store.standing), {}
        for name in PINNED:
            moved[name], versions[name] = _rewrite_table(store, name, [r.versions[name] for r in rows], scrub)
            after_write(name)
        events = store.table("events")
        result = events.add(pa.Table.from_pylist([dict(event)], schema=events.schema))
        versions["events"] = follow("events", versions["events"], result.version)
        after_write("event")
        again = (replace(scrub_report(r), versions={n: moved[n].get(v, v) for n, v in r.versions.items()}) for r in rows)
        return Written(versions, tuple(new for new, old in zip(again, rows, strict=True) if new != old))

    return change


def _rewrite_table(store: BankStore, name: str, pinned: list[int], scrub: Scrub) -> tuple[dict[int, int], int]:
    """({old version: new version} of those that held something to scrub, the version on top, which holds the newest content)."""
    table, at, moved = store.table(name), store.standing[name], {}
    for version in sorted(set(pinned), key=lambda v: (v == pinned[-1], v)):
        table.checkout(version)
        rows = table.to_arrow()
        table.checkout_latest()
        clean = scrub(name, rows)
        if clean is not rows or (moved and version == pinned[-1]):
            at = follow(name, at, table.add(clean, mode="overwrite").version)
            moved[version] = at
    return moved, at


def let_go(store: BankStore, rows: tuple[BoundaryRow, ...], gone: frozenset[int]) -> int:
    """Delete every version that no boundary of `rows` pins, those in `gone` aside. Returns the bytes that were freed.

    Tags are first put where the pins are: whatever a killed writer left behind holds nothing back. Repeating it is harmless.
    """
    kept = {r.tag: r for r in rows if r.boundary_id not in gone}
    freed = 0
    for name in KEYS:
        table = store.table(name)
        if name in PINNED:
            _align_tags(table, {tag: r.versions[name] for tag, r in kept.items()})
        else:
            table.to_lance().optimize.compact_files()
        freed += _clean(store, name)
    return freed


def _align_tags(table: Any, wanted: Mapping[str, int]) -> None:
    present = {tag: found["version"] for tag, found in table.tags.list().items()}
    for tag in present.keys() - wanted.keys():
        table.tags.delete(tag)
    for tag, version in wanted.items():
        if present.get(tag) != version:
            place = table.tags.update if tag in present else table.tags.create
            place(tag, version)


def _clean(store: BankStore, name: str) -> int:
    try:
        # half-written files of a killed process are only certain to be nobody's while the lock keeps others out
        stats = (
            store.table(name)
            .to_lance()
            .cleanup_old_versions(
                older_than=timedelta(0),
                error_if_tagged_old_versions=False,
                delete_unverified=store.fenced_by_lock and name != "distillations",
            )
        )
    except LANCE_ERRORS as error:
        raise BankError(
            f"{store.uri}: old versions of table {name} could not be deleted ({first_line(error)}); the bank itself is whole"
        ) from error
    return int(stats.bytes_removed)
