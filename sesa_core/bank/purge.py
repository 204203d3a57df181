"""Purge: a card that must not be kept is scrubbed from every version of every table.

Owns what is taken out: the card's rows, its tombstones, the payload of its events, its text where a failure was shown it, the
texts of the failures that it was distilled from, the judge's replies about those, and what reports say of it. Ids stay, so that the ledger
still adds up. Invariant: history is written again first, then one write moves all pins at once, then the old versions are
deleted; a purge that is repeated finishes what a killed one left. Edge case: the lesson is not kept out any more, since nothing
of it is left to compare with; evidence and trajectories outside the bank are not touched.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sesa_core.bank.boundary import commit, recover
from sesa_core.bank.edition import Person
from sesa_core.bank.operations import unknown_card
from sesa_core.bank.places import released
from sesa_core.bank.replies import quoted
from sesa_core.bank.rows import PURGED, event_row
from sesa_core.bank.segment import BoundaryReport
from sesa_core.bank.store import BankStore
from sesa_core.bank.tables import DROPPED, PENDING, BoundaryRow, failure_from, to_json
from sesa_core.bank.writes import AfterWrite, let_go, no_callback, rewrite_history
from sesa_core.errors import UserError
from sesa_core.types import Failure

SCRUBBED = to_json(PURGED)
_REPORTED = ("added", "evicted", "refused", "changed")


@dataclass(frozen=True)
class Purged:
    """`rewritten` are the earlier boundaries that held something of the card; `report` is None if only old files were left."""

    report: BoundaryReport | None
    rewritten: tuple[int, ...]
    freed_bytes: int


@dataclass(frozen=True)
class Sources:
    """What a card came from: failures by id, and every failure of these problems."""

    failure_ids: frozenset[str]
    problem_ids: frozenset[str]


def purge_card(store: BankStore, card_id: str, person: Person, *, after_write: AfterWrite = no_callback) -> Purged:
    """Scrub a card. Raises UserError for a card that no boundary knows."""
    recover(store)
    rows = store.boundaries()
    gone = frozenset(released(rows))
    events = [e for e in store.read_events() if e["card_id"] == card_id]
    if not events:
        raise UserError(unknown_card(card_id, sorted({e["card_id"] for e in store.read_events()} - {""})))
    if any(e["kind"] == "purged" for e in events) and not any(c.card_id == card_id for c in store.read_cards()):
        return Purged(None, (), let_go(store, tuple(rows), gone))
    sources = _sources(store, events)
    readable = tuple(r for r in rows if r.boundary_id not in gone)
    event = event_row("purged", rows[-1].boundary_id + 1, card_id, {"by": person.by, "why": person.why})
    change = rewrite_history(
        readable, lambda name, table: scrub(name, table, card_id, sources), lambda row: scrub_report(row, card_id), event
    )
    if sources.failure_ids:
        # before the row: afterwards nothing would tell any more which replies they were
        store.table("distillations").delete(f"failure_id IN {quoted(sources.failure_ids)}")
    done = commit(store, _report(store, rows[-1], card_id, person), change, after_write=after_write)
    after = store.boundaries()
    rewritten = tuple(new.boundary_id for old, new in zip(rows, after, strict=False) if old != new)
    return Purged(done, rewritten, let_go(store, tuple(after), gone))


def _report(store: BankStore, last: BoundaryRow, card_id: str, person: Person) -> BoundaryReport:
    cards = store.read_cards()
    left = [c for c in cards if c.card_id != card_id]
    return BoundaryReport(
        boundary_id=last.boundary_id + 1,
        kind="purge",
        run=store.run,
        by=person.by,
        why=person.why,
        changed=({"card_id": card_id, "change": "purged"},),
        cards={"total": len(left), "active": sum(c.state == "active" for c in left)},
    )


def _sources(store: BankStore, events: Collection[Mapping[str, Any]]) -> Sources:
    payloads = [e["payload"] for e in events]
    named = {p.get("failure_id", "") for p in payloads} - {""}
    cards = [p.get("card") or p.get("tombstone", {}).get("card", {}) for p in payloads]
    problems = frozenset({c.get("source_problem_id", "") for c in cards} - {""})
    related = {r.failure.failure_id for r in store.read_failures() if r.failure.problem_id in problems}
    return Sources(frozenset(named | related), problems)


def scrub(name: str, table: pa.Table, card_id: str, sources: Sources) -> pa.Table:
    """A pinned table's rows without anything of the card; the very same object if there is nothing of it."""
    if name in ("cards", "tombstones"):
        staying = table.filter(pc.not_equal(table["card_id"], card_id))
        return table if len(staying) == len(table) else staying
    rows = table.to_pylist()
    clean = [_scrub_event(r, card_id) if name == "events" else _scrub_failure(r, card_id, sources) for r in rows]
    return table if clean == rows else pa.Table.from_pylist(clean, schema=table.schema)


def _scrub_event(row: dict[str, Any], card_id: str) -> dict[str, Any]:
    if row["card_id"] != card_id or row["kind"] == "purged":
        return row
    return row | {"payload": SCRUBBED}


def _scrub_failure(row: dict[str, Any], card_id: str, sources: Sources) -> dict[str, Any]:
    failure = failure_from(json.loads(row["failure"]))
    if row["failure_id"] in sources.failure_ids or row["problem_id"] in sources.problem_ids:
        row = row | {"failure": to_json(asdict(_emptied(failure))), "reason": "purged"}
        return row | {"state": DROPPED} if row["state"] == PENDING else row
    shown = tuple(replace(c, text="") if c.card_id == card_id else c for c in failure.shown_cards)
    return row if shown == failure.shown_cards else row | {"failure": to_json(asdict(replace(failure, shown_cards=shown)))}


def _emptied(failure: Failure) -> Failure:
    texts = {
        "question": "",
        "answer": "",
        "reference_answers": (),
        "queries": (),
        "evidence": (),
        "problem_evidence": (),
        "shown_cards": (),
    }
    return replace(failure, **texts)


def scrub_report(row: BoundaryRow, card_id: str) -> BoundaryRow:
    """The boundary with nothing of the card in its report but the id."""
    report = dict(row.report)
    for name in report.keys() & set(_REPORTED):
        report[name] = [_emptied_entry(e) if e.get("card_id") == card_id and name != "changed" else e for e in report[name]]
    return row if report == dict(row.report) else replace(row, report=report)


def _emptied_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("card_id", "tombstone_id", "failure_id", "source_problem_id", "category")
    return {k: v if k in kept or not isinstance(v, str | list) else type(v)() for k, v in entry.items()}
