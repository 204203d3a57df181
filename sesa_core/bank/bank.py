"""The bank as a person works with it: read any boundary, change cards, take in and give out, go back, keep house.

Every change is a boundary of its own: planned in full, judged by the same gate as a segment's, then committed, or refused with
nothing written. Invariant: whatever is committed says who asked and why. Edge case: a bank without any boundary gets an empty
boundary 0 before its first change, so that cards can be taken into a new place.

    with Bank.open("runs/first/bank", WordLlamaEmbedder(), by="ada") as bank:
        bank.suspend(["card-1f3a"], why="answers with the wrong river")
        bank.restore_to("before-import")
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sesa_core.bank import operations
from sesa_core.bank.boundary import commit_plan, initialise, recover
from sesa_core.bank.compaction import Compacted, compact_bank
from sesa_core.bank.diff import BankDiff, difference_between
from sesa_core.bank.edition import Edition, Person, plan_edition
from sesa_core.bank.exchange.files import read_file, write_file
from sesa_core.bank.exchange.intake import Intake, take_in
from sesa_core.bank.exchange.records import Record, records_of
from sesa_core.bank.explain import Hit, explain
from sesa_core.bank.history import card_history, statistics
from sesa_core.bank.places import released
from sesa_core.bank.purge import Purged, purge_card
from sesa_core.bank.restoration import restore_to
from sesa_core.bank.segment import BoundaryReport
from sesa_core.bank.state import BankState
from sesa_core.bank.store import At, BankStore
from sesa_core.bank.tables import BoundaryRow, Tombstone
from sesa_core.bank.verification import Verified, verify
from sesa_core.bank.writes import AfterWrite, no_callback
from sesa_core.cards.schema import SkillCard
from sesa_core.config.models import BankSettings
from sesa_core.embed.base import Embedder
from sesa_core.errors import BankError, UserError


class Bank:
    """Open with `Bank.open`, or over a store that is open already."""

    def __init__(
        self, store: BankStore, *, by: str = "", settings: BankSettings | None = None, after_write: AfterWrite = no_callback
    ) -> None:
        """`after_write` is called with a name after each single write, as in `commit_segment`."""
        self.store, self.by, self.settings, self.after_write = store, by, settings or BankSettings(), after_write

    @classmethod
    @contextmanager
    def open(
        cls,
        uri: str | Path,
        embedder: Embedder,
        *,
        by: str = "",
        run: str = "",
        settings: BankSettings | None = None,
        write: bool = True,
        storage_options: Mapping[str, str] | None = None,
    ) -> Iterator[Self]:
        """`by` is who asks for changes; `settings` decide the cap, the floor and the rank. Raises as `BankStore.open` does."""
        owner = by or None
        with BankStore.open(uri, embedder=embedder, run=run, owner=owner, write=write, storage_options=storage_options) as store:
            yield cls(store, by=by, settings=settings)

    # -- reading

    def cards(self, at: At = None) -> list[SkillCard]:
        return self.store.read_cards(at)

    def card(self, card_id: str, at: At = None) -> SkillCard:
        """Raises UserError for a card that this boundary does not hold, saying so if it was evicted."""
        return operations.find_card(self.store.read_state(at), card_id)[0]

    def tombstones(self, at: At = None) -> list[Tombstone]:
        return self.store.read_tombstones(at)

    def boundaries(self) -> list[BoundaryRow]:
        return self.store.boundaries()

    def tags(self) -> list[dict[str, Any]]:
        return self.store.tags.rows()

    def search(self, question: str, at: At = None, *, dataset: str | None = None) -> list[Hit]:
        """Every card with its place for this question, or why it is left out."""
        return explain(self.store, question, self.settings, at, dataset=dataset)

    def diff(self, before: At, after: At = None) -> BankDiff:
        cards, stones = self.store.read_cards, self.store.read_tombstones
        return difference_between(cards(before), cards(after), stones(before), stones(after))

    def history(self, card_id: str, at: At = None) -> list[dict[str, Any]]:
        """Everything that the ledger of a boundary knows about a card. Raises UserError if that is nothing."""
        events = self.store.read_events(at)
        told = card_history(card_id, events, self.store.boundaries())
        if not told:
            raise UserError(operations.unknown_card(card_id, sorted({e["card_id"] for e in events} - {""})))
        return told

    def statistics(self, at: At = None) -> dict[str, Any]:
        return statistics(self.store.read_cards(at), self.store.read_tombstones(at))

    def statistics_over_time(self) -> list[dict[str, Any]]:
        """The whole bank's numbers at every boundary that can still be read, oldest first."""
        everything = self.boundaries()
        gone = released(everything)
        return [{"boundary": r.boundary_id, "tag": r.tag, **self.statistics(r)["bank"]} for r in everything if r.boundary_id not in gone]

    def verify(self, at: At = None) -> Verified:
        """Whether tables, ledger and pins tell the same at every boundary up to `at`."""
        return verify(self.store, at)

    # -- changing cards

    def suspend(self, card_ids: Sequence[str], why: str = "") -> BoundaryReport:
        return self._change(lambda state: operations.suspend(state, card_ids, self._person(why)))

    def activate(self, card_ids: Sequence[str], why: str = "") -> BoundaryReport:
        return self._change(lambda state: operations.activate(state, card_ids, self._person(why)))

    def approve(self, card_ids: Sequence[str], why: str = "") -> BoundaryReport:
        return self._change(lambda state: operations.approve(state, card_ids, self._person(why)))

    def edit(self, card_id: str, changes: Mapping[str, Any], why: str = "") -> BoundaryReport:
        shared = {"embedder": self.store.embedder, "dedup_threshold": self.settings.dedup_threshold}
        return self._change(lambda state: operations.edit(state, card_id, changes, self._person(why), **shared))

    def evict(self, card_ids: Sequence[str], why: str = "") -> BoundaryReport:
        return self._change(lambda state: operations.evict(state, card_ids, self._person(why)))

    def restore_card(self, card_id: str, why: str = "", *, keep_counters: bool = False) -> BoundaryReport:
        """Bring an evicted card back, for a trial of its own; with `keep_counters` eviction goes on with what it had earned."""
        return self._change(lambda state: operations.restore_card(state, card_id, self._person(why), keep_counters=keep_counters))

    def restore_to(self, at: At, why: str = "") -> BoundaryReport:
        """Cards, tombstones and failures as they were at an earlier boundary, as a new one."""

        def edition(state: BankState) -> Edition:
            to = self.store.boundary(at).boundary_id
            failures = tuple({r.failure.failure_id: r for r in self.store.read_failures(b)} for b in (None, to))
            return restore_to(state, self.store.read_state(to), failures, to, self._person(why))

        return self._change(edition)

    # -- giving and taking

    def records(self, at: At = None, *, vectors: bool = True, tombstones: bool = True) -> list[Record]:
        state = self.store.read_state(at)
        stones, graves = (state.tombstones, state.tombstone_vectors) if tombstones else ((), state.tombstone_vectors[:0])
        return records_of(state.cards, state.cards.vectors, stones, graves, keep_vectors=vectors)

    def export(self, path: Path, at: At = None, *, form: str | None = None, vectors: bool = True, tombstones: bool = True) -> int:
        """Write cards and tombstones to a file that is not there yet; how many records."""
        records = self.records(at, vectors=vectors, tombstones=tombstones)
        write_file(path, records, form)
        return len(records)

    def take_in(self, path: Path, why: str = "", *, form: str | None = None) -> Intake:
        """Read a file, then `take_in_records`. The whole file is refused on the first bad card."""
        return self.take_in_records(read_file(path, form), why)

    def take_in_records(self, records: Sequence[Record], why: str = "") -> Intake:
        """What is new enters as one boundary; if nothing is, there is no boundary."""
        self._stand()
        shared = {"embedder": self.store.embedder, "dedup_threshold": self.settings.dedup_threshold}
        state = self.store.read_state()
        intake = take_in(state, records, self._person(why), **shared)
        if intake.edition is not None:
            self._commit(state, intake.edition)
        return intake

    # -- keeping house

    def tag(self, name: str, at: At = None, why: str = "") -> int:
        """Give a boundary a name that reading accepts and compaction respects; its number. Raises ConfigError."""
        row = self._require(at)
        self.store.tags.add(name, row.boundary_id, self.by, why)
        return row.boundary_id

    def untag(self, name: str) -> None:
        self._require(None)
        self.store.tags.remove(name)

    def compact(self, why: str = "", *, keep: int | None = None) -> Compacted:
        """See `compaction`: all boundaries stay readable unless `keep` says how many of the newest do."""
        return compact_bank(self.store, self._person(why), keep, after_write=self.after_write)

    def purge(self, card_id: str, why: str = "") -> Purged:
        """See `purge`: nothing of the card is kept, in any version. There is no way back."""
        return purge_card(self.store, card_id, self._person(why), after_write=self.after_write)

    # -- within

    def _person(self, why: str) -> Person:
        return Person(self.by or self.store.owner, why)

    def _require(self, at: At) -> BoundaryRow:
        row = self.store.boundary(at)
        if row is None or not self.store.write:
            raise BankError(f"the bank in {self.store.uri} {'has no boundary yet' if row is None else 'was opened for reading'}")
        return row

    def _stand(self) -> None:
        recover(self.store)
        if self.store.last_boundary() is None:
            initialise(self.store, [], checkpoints={}, config_hash="")
            recover(self.store)

    def _change(self, edition: Callable[[BankState], Edition]) -> BoundaryReport:
        self._stand()
        state = self.store.read_state()
        return self._commit(state, edition(state))

    def _commit(self, state: BankState, edition: Edition) -> BoundaryReport:
        plan = plan_edition(state, edition, max_cards=self.settings.max_cards, dimension=self.store.embedder.dimension)
        return commit_plan(self.store, plan, after_write=self.after_write)
