"""Compaction: small files become one, and versions that nobody needs any more are deleted.

A boundary of its own. Invariant: what a person tagged, boundary 0 and the newest boundaries stay readable; the row that says
which boundaries were let go is committed before a single version is deleted. Edge case: a compaction that was killed after its
row is finished by the next one.
"""

from dataclasses import dataclass

from sesa_core.bank.boundary import commit, recover
from sesa_core.bank.edition import Person
from sesa_core.bank.places import released
from sesa_core.bank.rows import event_row
from sesa_core.bank.segment import BoundaryReport
from sesa_core.bank.store import BankStore
from sesa_core.bank.writes import AfterWrite, compact, let_go, no_callback
from sesa_core.errors import BankError, ConfigError


@dataclass(frozen=True)
class Compacted:
    """`released` are the boundaries that cannot be read any more, of this compaction alone."""

    report: BoundaryReport
    released: tuple[int, ...]
    freed_bytes: int


def compact_bank(store: BankStore, person: Person, keep: int | None = None, *, after_write: AfterWrite = no_callback) -> Compacted:
    """Compact every table. `keep` is how many of the newest boundaries stay readable; None keeps all.

    Raises ConfigError for a `keep` below 1, BankError for a bank without a boundary.
    """
    if keep is not None and keep < 1:
        raise ConfigError("keep", keep, "at least the newest boundary stays")
    recover(store)
    rows = store.boundaries()
    if not rows:
        raise BankError(f"the bank in {store.uri} has no boundary yet: there is nothing to compact")
    boundary_id = rows[-1].boundary_id + 1
    gone_before = released(rows)
    kept = {0, *store.tags.boundaries().values()}
    oldest = 0 if keep is None else boundary_id - keep + 1
    gone = tuple(r.boundary_id for r in rows if r.boundary_id < oldest and r.boundary_id not in kept and r.boundary_id not in gone_before)
    report = BoundaryReport(
        boundary_id=boundary_id,
        kind="compact",
        run=store.run,
        by=person.by,
        why=person.why,
        cards=rows[-1].report.get("cards", {}),
        details={"released": list(gone)},
    )
    event = event_row("compacted", boundary_id, "", {"by": person.by, "why": person.why, "released": list(gone)})
    done = commit(store, report, compact(event), after_write=after_write)
    freed = let_go(store, tuple(store.boundaries()), frozenset(gone_before) | frozenset(gone))
    return Compacted(done, gone, freed)
