"""Do a bank's tables, its ledger and its pins tell the same? The first place where they do not is named.

Owns the comparison; nothing is written. Every boundary that can be read is: that its pins can be opened, that no card stands
twice and none beside its own tombstone, that the ledger only ever grew, and that it plays again to these very cards and
tombstones. Invariant: what is unreadable is a finding, not an error. Edge case: rows that lie ahead of the newest pins belong to
a writer at work or a killed one; they are told and are no difference.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sesa_core.bank.places import released
from sesa_core.bank.replay import Replayed, replay
from sesa_core.bank.store import At, BankStore
from sesa_core.bank.tables import KEYS, PINNED, BoundaryRow, Tombstone
from sesa_core.cards.schema import SkillCard
from sesa_core.errors import BankError

T = TypeVar("T")


@dataclass(frozen=True)
class Difference:
    """`where`: pins (what is pinned cannot be read), tables (they contradict themselves), ledger (it tells something else)."""

    boundary_id: int
    tag: str
    where: str
    what: str


@dataclass(frozen=True)
class Verified:
    """`boundaries` were read, `released` cannot be any more; the counts are those of the newest that was read."""

    boundaries: int = 0
    released: int = 0
    cards: int = 0
    tombstones: int = 0
    events: int = 0
    ahead: tuple[str, ...] = ()
    difference: Difference | None = None

    @property
    def agrees(self) -> bool:
        return self.difference is None

    def as_json(self) -> dict[str, Any]:
        return {"agrees": self.agrees} | asdict(self)


@dataclass(frozen=True)
class _Content:
    """What one boundary pins, as read."""

    cards: Sequence[SkillCard]
    tombstones: Sequence[Tombstone]
    events: pa.Table


def verify(store: BankStore, at: At = None) -> Verified:
    """Every boundary up to `at`, oldest first. Raises ConfigError for an unknown boundary."""
    newest = store.boundary(at)
    if newest is None:
        return Verified()
    everything = store.boundaries()
    rows, gone = [r for r in everything if r.boundary_id <= newest.boundary_id], released(everything)
    readable = [r for r in rows if r.boundary_id not in gone]
    found = next(_differences(store, readable, [r.boundary_id for r in rows]), None)
    return Verified(
        boundaries=len(readable),
        released=len(rows) - len(readable),
        ahead=tuple(n for n in PINNED if _stands_ahead(store, n, newest)) if at is None else (),
        difference=found,
        **({n: len(store.pinned(n, newest)) for n in ("cards", "tombstones", "events")} if found is None else {}),
    )


def _stands_ahead(store: BankStore, name: str, newest: BoundaryRow) -> bool:
    try:
        return store.table(name).version != newest.versions[name]
    except BankError:  # a finding already
        return False


def _differences(store: BankStore, rows: Sequence[BoundaryRow], boundary_ids: Sequence[int]) -> Iterator[Difference]:
    if list(boundary_ids) != list(range(len(boundary_ids))):
        missing = min(set(range(boundary_ids[-1])) - set(boundary_ids))
        yield Difference(missing, "", "pins", "its row is missing")
    last, fault = rows[-1], ""
    try:
        ledger, states = store.pinned("events", last), replay(store.read_events(last), boundary_ids)
    except BankError as error:
        ledger, states, fault = None, {}, str(error)
    for row in rows:
        try:
            content = _read(store, row)
        except BankError as error:
            yield Difference(row.boundary_id, row.tag, "pins", str(error))
            continue
        for what in _contradictions(content):
            yield Difference(row.boundary_id, row.tag, "tables", what)
        if states:
            for what in (*_rewritten(content.events, ledger, row.boundary_id), *_untold(content, states[row.boundary_id])):
                yield Difference(row.boundary_id, row.tag, "ledger", what)
    if fault:
        yield Difference(last.boundary_id, last.tag, "ledger", fault)


def _read(store: BankStore, row: BoundaryRow) -> _Content:
    store.read_failures(row)  # has no part in the ledger, but must be readable
    return _Content(store.read_cards(row), store.read_tombstones(row), store.pinned("events", row))


def _contradictions(content: _Content) -> Iterator[str]:
    """What the tables of one boundary say twice, or say and deny."""
    for name, values in {
        "card": [c.card_id for c in content.cards],
        "content": [c.content_hash for c in content.cards],
        "tombstone": [t.tombstone_id for t in content.tombstones],
        "event": content.events[KEYS["events"]].to_pylist(),
    }.items():
        twice = next((value for value, count in Counter(values).items() if count > 1), None)
        if twice is not None:
            yield f"{name} {twice} is there twice"
    present = {c.card_id for c in content.cards}
    for stone in content.tombstones:
        if stone.lifted_boundary is None and stone.card.card_id in present:
            yield f"card {stone.card.card_id} is there, and so is its tombstone {stone.tombstone_id}"


def _rewritten(events: pa.Table, ledger: pa.Table, boundary_id: int) -> Iterator[str]:
    """Where a boundary's ledger is not the beginning of the newest one."""
    beginning = ledger.filter(pc.less_equal(ledger["boundary_id"], boundary_id))
    if not events.equals(beginning):
        then, now = ({e["event_id"]: e for e in table.to_pylist()} for table in (events, beginning))
        first = next(key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key))
        yield f"event {first} is not what the newest ledger says of it"


def _untold(content: _Content, told: Replayed) -> Iterator[str]:
    """What the tables hold and the ledger does not tell, or tells otherwise."""
    yield from _unlike("card", {c.card_id: c for c in content.cards}, told.cards, SkillCard.model_dump)
    yield from _unlike("tombstone", {t.tombstone_id: t for t in content.tombstones}, told.tombstones, asdict)


def _unlike(kind: str, table: Mapping[str, T], told: Mapping[str, T], plain: Callable[[T], Mapping[str, Any]]) -> Iterator[str]:
    for key in sorted(table.keys() | told.keys()):
        if key not in told:
            yield f"{kind} {key} is in the table and the ledger knows nothing of it"
        elif key not in table:
            yield f"{kind} {key} is missing from the table, the ledger has it"
        elif table[key] != told[key]:
            held, expected = plain(table[key]), plain(told[key])
            name = next(n for n in held if held[n] != expected[n])
            yield f"{kind} {key}: {name} is {_short(held[name])} in the table, {_short(expected[name])} by the ledger"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
