"""The bank as a state machine: whatever is done to it, in whatever order, and wherever a writer dies, it stays one bank.

A real bank in a temporary folder. Every change may be cut off between any two of its writes; then the bank is opened anew. After
every step: no id and no content twice, no card beside its tombstone, the ledger plays again to the tables of every boundary and
every pin can be read (`verify`), and what a person named is what it was to the last byte.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.exchange.records import Burial, Record
from sesa_core.bank.places import released
from sesa_core.bank.segment import SegmentCommit
from sesa_core.bank.writes import AfterWrite, no_callback
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.models import BankSettings
from sesa_core.errors import UserError
from tests.bank_support import SECTION, card, draft, embedder, failure, reply, segment_commit, use

SHARED = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}
QUICK = settings(max_examples=2, stateful_step_count=12, phases=[Phase.generate], **SHARED)
LONG = settings(max_examples=30, stateful_step_count=40, phases=[Phase.generate], **SHARED)
RULES = [
    BankSettings(credit="uniform", eviction="net_score", max_cards=4),
    BankSettings(credit="similarity", eviction="net_score", max_cards=4),
    BankSettings(max_cards=4),
]

lessons = st.tuples(st.sampled_from(sorted(SECTION)), st.sampled_from(["", "history"]))
deaths = st.one_of(st.just(0), st.integers(1, 11))  # the write after which the writer dies; 0: it lives


class Killed(Exception):
    """A writer is gone."""


class BankMachine(RuleBasedStateMachine):
    """`hashes` holds the content of every readable boundary as it was when it was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="sesa-bank-machine-")
        self.stack = ExitStack()
        self.number = 0
        self.reopen()
        initialise(
            self.bank.store,
            [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate"), card("religion")],
            checkpoints={},
            config_hash="c",
        )
        self.hashes = {self.bank.boundaries()[0].tag: self.bank.store.content_hash()}

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def change(self, operation: Callable[[AfterWrite], object], death: int) -> None:
        """Do it, or die at it: afterwards it happened in full or not at all."""
        before, writes = self.bank.boundaries()[-1], []

        def after_write(name: str) -> None:
            writes.append(name)
            if len(writes) == death:
                raise Killed

        self.bank.after_write = after_write
        try:
            operation(after_write)
        except UserError:
            assert not writes, "what is refused writes nothing"
        except Killed:
            self.reopen()
            if death % 2:  # else the next writer finds what was left
                recover(self.bank.store)
        self.bank.after_write = no_callback
        committed = "boundary" in writes
        after = self.bank.boundaries()[-1]
        assert after.boundary_id == before.boundary_id + committed
        if committed:
            self.hashes[after.tag] = self.bank.store.content_hash()
            gone = released(self.bank.boundaries())
            self.hashes = {r.tag: self.hashes[r.tag] for r in self.bank.boundaries() if r.boundary_id not in gone}
        else:
            assert self.bank.store.content_hash() == self.hashes[before.tag]

    def cards(self) -> list[str]:
        return [c.card_id for c in self.bank.cards() if c.origin is not Origin.SEED]

    def buried(self) -> list[str]:
        return sorted({t.card.card_id for t in self.bank.tombstones() if t.lifted_boundary is None})

    # -- what a run does

    @rule(choice=st.data(), bank=st.sampled_from(RULES), death=deaths)
    def cards_are_used(self, choice: st.DataObject, bank: BankSettings, death: int) -> None:
        number, uses = self.next_number(), []
        for card_id in [*self.cards(), "seed-anthem"]:
            solved, problems = choice.draw(st.sampled_from([0.0, 1.0])), choice.draw(st.integers(0, 4))
            uses += [use(card_id, f"p{number}-{i}", (solved, 0.0), without=(1.0 - solved,), step=number * 10 + i) for i in range(problems)]
        self.commit(segment_commit(number, uses=uses, bank=bank), death)

    @rule(failing=st.lists(lessons, min_size=1, max_size=3, unique=True), bank=st.sampled_from(RULES), death=deaths)
    def failures_are_distilled(self, failing: list[tuple[str, str]], bank: BankSettings, death: int) -> None:
        number = self.next_number()
        failures = [failure(f"f{number}-{i}", relation, step=number * 10) for i, (relation, _) in enumerate(failing)]
        replies = [reply(f.failure_id, draft(r, section=s)) for f, (r, s) in zip(failures, failing, strict=True)]
        self.commit(segment_commit(number, failures=failures, replies=replies, bank=bank), death)

    def commit(self, segment: SegmentCommit, death: int) -> None:
        self.change(lambda after_write: commit_segment(self.bank.store, segment, after_write=after_write), death)

    # -- what a person does

    @precondition(lambda self: self.cards())
    @rule(choice=st.data(), death=deaths)
    def evict(self, choice: st.DataObject, death: int) -> None:
        chosen = choice.draw(st.sampled_from(self.cards()))
        self.change(lambda _: self.bank.evict([chosen], "a test"), death)

    @precondition(lambda self: self.buried())
    @rule(choice=st.data(), keep_counters=st.booleans(), death=deaths)
    def restore(self, choice: st.DataObject, keep_counters: bool, death: int) -> None:
        chosen = choice.draw(st.sampled_from(self.buried()))
        self.change(lambda _: self.bank.restore_card(chosen, keep_counters=keep_counters), death)

    @precondition(lambda self: self.cards())
    @rule(choice=st.data(), death=deaths)
    def edit_suspend_or_activate(self, choice: st.DataObject, death: int) -> None:
        chosen, number = choice.draw(st.sampled_from(self.cards())), self.next_number()
        if choice.draw(st.booleans()):
            self.change(lambda _: self.bank.edit(chosen, {"common_confusion": f"It is taken for number {number}."}), death)
        elif self.bank.card(chosen).state is CardState.SUSPENDED:
            self.change(lambda _: self.bank.activate([chosen]), death)
        else:
            self.change(lambda _: self.bank.suspend([chosen]), death)

    @rule(lesson=lessons, buried=st.booleans(), death=deaths)
    def import_one(self, lesson: tuple[str, str], buried: bool, death: int) -> None:
        """A card, or the tombstone of one, that some other bank gave out."""
        relation, section = lesson
        name = f"import-{relation.replace(' ', '-')}{section and '-'}{section}"
        given = card(relation, card_id=name, section=section, run="other")
        record = Record(given, Burial(f"{name}@3", 3, "net_score") if buried else None)
        self.change(lambda _: self.bank.take_in_records([record]), death)

    @precondition(lambda self: len(self.hashes) > 1)
    @rule(choice=st.data(), death=deaths)
    def restore_to(self, choice: st.DataObject, death: int) -> None:
        chosen = choice.draw(st.sampled_from(sorted(self.hashes)))
        self.change(lambda _: self.bank.restore_to(chosen), death)

    @precondition(lambda self: len(self.hashes) > 2)
    @rule(keep=st.sampled_from([None, 1, 3]), death=deaths)
    def compact(self, keep: int | None, death: int) -> None:
        self.change(lambda _: self.bank.compact(keep=keep), death)

    @precondition(lambda self: len(self.bank.tags()) < 3)
    @rule(choice=st.data())
    def tag(self, choice: st.DataObject) -> None:
        self.bank.tag(f"name-{self.next_number()}", choice.draw(st.sampled_from(sorted(self.hashes))))

    @rule()
    def reopen(self) -> None:
        self.stack.close()
        settings_of_persons = BankSettings(max_cards=20)
        self.bank = self.stack.enter_context(
            Bank.open(Path(self.folder.name) / "bank", embedder(), by="ada", run="machine", settings=settings_of_persons)
        )

    # -- what always holds

    @invariant()
    def nothing_is_there_twice_and_no_buried_card_is_there(self) -> None:
        cards = self.bank.store.pinned("cards")
        for column in ("card_id", "content_hash"):
            assert len(set(cards[column].to_pylist())) == len(cards)
        assert not set(cards["card_id"].to_pylist()) & set(self.buried())

    @invariant()
    def cards_at_hand_are_those_that_are_written(self) -> None:
        held, written = self.bank.store.holding(), self.bank.store.pinned("cards")
        assert held.rows.equals(written.drop_columns(["vector"]))
        assert held.vectors.tolist() == written["vector"].to_pylist()

    @invariant()
    def tables_ledger_and_pins_agree_at_every_boundary(self) -> None:
        found = self.bank.verify()
        assert found.difference is None
        assert (found.boundaries, found.cards) == (len(self.hashes), len(self.bank.cards()))

    @invariant()
    def what_has_a_name_is_what_it_was(self) -> None:
        tags = {row.boundary_id: row.tag for row in self.bank.boundaries()}
        for name, boundary_id in self.bank.store.tags.boundaries().items():
            assert self.bank.store.content_hash(name) == self.hashes[tags[boundary_id]]

    def teardown(self) -> None:
        changed = [tag for tag, content in self.hashes.items() if self.bank.store.content_hash(tag) != content]
        self.stack.close()
        self.folder.cleanup()
        assert changed == [], "every boundary can still be read, to the last byte"


def test_the_bank_stays_one_bank_whatever_is_done_to_it():
    run_state_machine_as_test(BankMachine, settings=QUICK)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_bank_stays_one_bank_through_long_histories():
    run_state_machine_as_test(BankMachine, settings=LONG)
