"""`verify`: a whole bank agrees with its ledger at every boundary, and whatever was tampered with is named."""

import json
from pathlib import Path

import pytest

from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.exchange.records import Burial, Record
from sesa_core.bank.replay import replay
from sesa_core.bank.store import BankStore
from sesa_core.bank.verification import Verified, verify
from sesa_core.cards.schema import Origin
from sesa_core.config.models import BankSettings
from sesa_core.errors import BankDamaged
from tests.bank_support import card, draft, embedder, failure, reply, segment_commit, use


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """0 start · 1 segment: anthem and climate used, climate evicted, currency admitted · 2 climate restored · 3 a card and a
    tombstone imported · 4 currency edited · 5 the whole bank back to 2 · 6 compacted, which lets 1, 3 and 4 go."""
    folder = tmp_path_factory.mktemp("verified") / "bank"
    with Bank.open(folder, embedder(), by="ada", run="r") as bank:
        start = [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")]
        initialise(bank.store, start, checkpoints={}, config_hash="c")
        uses = [use("card-climate", f"p{i}", (0.0,) * 4, without=(1.0,) * 4, step=i) for i in range(6)]
        uses.append(use("seed-anthem", "p1", (1.0, 0.0), without=(0.0, 0.0), step=4))
        failures, replies = [failure("f", "currency", step=7)], [reply("f", draft("currency"))]
        commit_segment(bank.store, segment_commit(1, uses=uses, failures=failures, replies=replies, bank=BankSettings()))
        bank.restore_card("card-climate", "one more try")
        bank.take_in_records([Record(card("religion")), Record(card("calling code"), Burial("card-calling-code@9", 9, "net_score"))])
        bank.edit(next(c.card_id for c in bank.cards() if c.judge_model), {"why": "a note"})
        bank.restore_to(2)
        bank.tag("dear", 2)
        bank.compact(keep=2)
    return folder


def repin(store: BankStore, name: str) -> None:
    """Let the newest boundary pin the table as it stands now, as whoever tampers with it would."""
    row = store.last_boundary()
    pins = json.dumps(dict(row.versions) | {name: store.table(name).version})
    store.table("boundaries").update(where=f"boundary_id = {row.boundary_id}", values={"versions": pins})


def tamper(store: BankStore, name: str, where: str, **values) -> None:
    store.table(name).update(where=where, values=values)
    repin(store, name)


def remove(store: BankStore, name: str, where: str) -> None:
    store.table(name).delete(where)
    repin(store, name)


def test_a_whole_bank_agrees_at_every_boundary_that_can_be_read(bank):
    found = bank.verify()
    assert found == Verified(boundaries=4, released=3, cards=3, tombstones=1, events=found.events)
    assert found.agrees and found.as_json()["agrees"] and found.events == len(bank.store.read_events())
    assert (bank.verify("dear").boundaries, bank.verify(0).cards) == (2, 2)


def test_the_ledger_plays_again_to_boundaries_that_nobody_can_read_any_more(bank):
    states = replay(bank.store.read_events(), range(7))
    judged = next(c.card_id for c in bank.cards() if c.judge_model)
    assert [len(states[b].cards) for b in range(7)] == [2, 2, 3, 4, 4, 3, 3]
    assert [sorted(states[b].tombstones) for b in (0, 1, 3)] == [[], ["card-climate@1"], ["card-calling-code@9", "card-climate@1"]]
    assert (states[4].cards[judged].why, states[5].cards[judged].why) == ("a note", None)
    buried = states[1].tombstones["card-climate@1"]
    assert (buried.reason, buried.card.hurt_count, buried.card.uplift_n, buried.lifted_boundary) == ("credible_uplift", 6, 6, None)
    assert states[2].tombstones["card-climate@1"].lifted_boundary == 2
    # one rollout of two that saw it scored, neither of the two that did not: helpful, a difference of .5 with weight 2 x 2 / 4 = 1
    seed = states[1].cards["seed-anthem"]
    assert (seed.retrieved_count, seed.helpful_count, seed.credit_helpful, seed.uplift_sum) == (1, 1, 0.5, 0.5)


def test_a_purged_card_was_never_there(bank):
    bank.purge("card-climate")
    assert bank.verify().agrees
    states = replay(bank.store.read_events(), range(8))
    assert not any("card-climate" in s.cards or s.tombstones.keys() & {"card-climate@1"} for s in states.values())


def test_rows_ahead_of_the_pins_are_told_and_are_no_difference(bank):
    bank.store.table("cards").update(where="card_id = 'card-climate'", values={"state": "suspended"})
    assert (bank.verify().ahead, bank.verify().agrees, bank.verify("dear").ahead) == (("cards",), True, ())


def test_a_bank_without_a_boundary_has_nothing_to_verify(tmp_path):
    with Bank.open(tmp_path / "b", embedder()) as empty:
        assert empty.verify() == Verified()


TAMPERED = {
    "a counter": (
        lambda s: tamper(s, "cards", "card_id = 'seed-anthem'", retrieved_count=9),
        (6, "ledger", "card seed-anthem: retrieved_count is 9 in the table, 1 by the ledger"),
    ),
    "a tombstone's reason": (
        lambda s: tamper(s, "tombstones", "card_id = 'card-climate'", reason="net_score"),
        (6, "ledger", "tombstone card-climate@1: reason is 'net_score' in the table, 'credible_uplift' by the ledger"),
    ),
    "a tombstone that was let down again": (
        lambda s: tamper(s, "tombstones", "card_id = 'card-climate'", lifted_boundary=None),
        (6, "tables", "card card-climate is there, and so is its tombstone card-climate@1"),
    ),
    "a tombstone that is gone": (
        lambda s: remove(s, "tombstones", "card_id = 'card-climate'"),
        (6, "ledger", "tombstone card-climate@1 is missing from the table, the ledger has it"),
    ),
    "a card that is gone": (
        lambda s: remove(s, "cards", "card_id = 'card-climate'"),
        (6, "ledger", "card card-climate is missing from the table, the ledger has it"),
    ),
    "a use that is gone": (
        lambda s: remove(s, "events", "event_id = 'use/seed-anthem/p1'"),
        (2, "ledger", "event use/seed-anthem/p1 is not what the newest ledger says of it"),
    ),
    "an admission that is gone": (
        lambda s: remove(s, "events", "kind = 'added' AND boundary_id = 0 AND card_id = 'card-climate'"),
        (6, "ledger", "event use/card-climate/p0 of boundary 1 cannot be played again: 'card-climate' is not there"),
    ),
    "an event of another kind": (
        lambda s: tamper(s, "events", "event_id = 'restored/card-climate@2'", kind="risen"),
        (6, "ledger", "event restored/card-climate@2 of boundary 2 cannot be played again: 'risen' is no kind of event"),
    ),
    "an event of a later boundary": (
        lambda s: tamper(s, "events", "event_id = 'restored/card-climate@2'", boundary_id=70),
        (6, "ledger", "event restored/card-climate@2 is of boundary 70, which was never committed"),
    ),
    "a boundary's row that is gone": (
        lambda s: s.table("boundaries").delete("boundary_id = 3"),
        (3, "pins", "its row is missing"),
    ),
    "a card's content": (
        lambda s: tamper(s, "cards", "card_id = 'card-climate'", pattern="tampered with"),
        (6, "pins", "card card-climate: its content does not match its content_hash"),
    ),
    "an event's payload": (
        lambda s: tamper(s, "events", "event_id = 'restored/card-climate@2'", payload="{"),
        (6, "ledger", "table events holds a damaged event"),
    ),
}


@pytest.mark.parametrize(("change", "named"), TAMPERED.values(), ids=TAMPERED)
def test_what_was_tampered_with_is_named(bank, change, named):
    change(bank.store)
    found = verify(bank.store).difference
    boundary, where, what = named
    assert (found.boundary_id, found.where) == (boundary, where) and what in found.what


def test_a_use_that_names_no_rule_of_credit_cannot_be_played(bank):
    events = bank.store.read_events()
    bare = [e | {"payload": {n: v for n, v in e["payload"].items() if n != "credit"}} for e in events]
    with pytest.raises(BankDamaged, match="event use/.* of boundary 1 cannot be played again: 'credit' is not there"):
        replay(bare, range(7))


def test_a_truncated_version_is_named_with_its_boundary(bank):
    files = sorted((Path(bank.store.uri) / "tombstones.lance" / "data").glob("*"))
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    found = bank.verify().difference
    assert (found.boundary_id, found.where) == (2, "pins"), "boundary 0 has no tombstone to read"
    assert "table tombstones of r.b-00002 cannot be read" in found.what and "\n" not in found.what
