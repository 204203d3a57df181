"""Opening, fencing and reading the bank."""

import json
import subprocess
import sys
import threading

import pytest

from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.bank.store import BankStore, run_slug
from sesa_core.cards.schema import CardState
from sesa_core.errors import BankBusy, BankError, BankIncompatible, ConfigError, MissingRun
from sesa_core.judge.base import ReplyState
from tests.bank_support import MODEL, PROMPT, card, draft, embedder, failure, reply, segment_commit


@pytest.fixture
def store(tmp_path):
    with BankStore.open(tmp_path / "bank", embedder=embedder(), run="Run 1", owner="tester") as opened:
        yield opened


def reader(store: BankStore) -> BankStore:
    return BankStore.open(store.uri, embedder=embedder(), run="reader", write=False)


class OtherEmbedder:
    name, dimension, floor, dedup_threshold = "other", 256, 0.5, 0.9


class NarrowEmbedder(OtherEmbedder):
    name, dimension = "narrow", 4


def test_a_new_bank_has_no_boundary_and_reads_as_empty(store):
    assert store.last_boundary() is None and store.boundaries() == []
    assert store.read_cards() == [] and store.pending_failures() == []
    assert BankSnapshot.open(store).retrieve(["q"], top_k=3) == [()]


def test_a_second_writer_is_refused_and_told_who_writes(store):
    with pytest.raises(BankBusy, match=r"tester \(run Run 1\)"):
        BankStore.open(store.uri, embedder=embedder(), run="r")
    script = (
        "from sesa_core.bank.store import BankStore\nfrom sesa_core.errors import BankBusy\nimport sys\n"
        "class E: name, dimension, floor, dedup_threshold = 'e', 256, 0.5, 0.9\n"
        "try: BankStore.open(sys.argv[1], embedder=E(), run='r')\n"
        "except BankBusy: print('busy')"
    )
    assert subprocess.run([sys.executable, "-c", script, store.uri], capture_output=True, text=True, check=True).stdout == "busy\n"
    store.close()
    BankStore.open(store.uri, embedder=embedder(), run="r").close()


def test_a_failed_opening_lets_go_of_the_lock(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    store.close()
    with pytest.raises(BankIncompatible, match="wordllama"):
        BankStore.open(store.uri, embedder=OtherEmbedder(), run="r")
    BankStore.open(store.uri, embedder=embedder(), run="r").close()


def test_a_bank_of_another_dimension_is_refused(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    with pytest.raises(BankIncompatible, match="256 dimensions"):
        BankStore.open(store.uri, embedder=NarrowEmbedder(), run="r", write=False)


def test_a_reader_needs_a_bank_and_may_not_change_it(store, tmp_path):
    with pytest.raises(MissingRun):
        BankStore.open(tmp_path / "nowhere", embedder=embedder(), run="r", write=False)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(BankError, match="opened for reading"):
        recover(reader(store))


def test_readers_see_committed_boundaries_only(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    store.table("cards").delete("card_id = 'card-anthem'")
    assert [c.card_id for c in reader(store).read_cards()] == ["card-anthem"]
    assert recover(store) == ["cards"]
    assert store.table("cards").count_rows() == 1


def test_every_boundary_can_be_read_by_id_tag_or_digits(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    commit_segment(store, segment_commit(failures=[failure("f", "currency")], replies=[reply("f", draft("currency"))]))
    for at in (0, "0", "run-1.b-00000"):
        assert [c.card_id for c in store.read_cards(at)] == ["card-anthem"]
    assert len(store.read_cards(1)) == len(store.read_cards("run-1.b-00001")) == len(store.read_cards()) == 2
    with pytest.raises(ConfigError, match=r"run-1.b-00000 to run-1.b-00001"):
        store.read_cards("nope")
    assert store.content_hash(0) != store.content_hash(1) == store.content_hash()


def test_tags_are_made_of_any_run_name():
    assert [run_slug(n) for n in ("Quick Start/3", "ünï", "a-b")] == ["quick-start-3", "n", "a-b"]


def test_cards_carry_their_vectors_on_demand(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    assert store.read_cards()[0].vector == ()
    assert len(store.read_cards(vectors=True)[0].vector) == 256


def test_suspended_and_candidate_cards_are_kept_and_never_shown(store):
    cards = [card("anthem"), card("anthem", card_id="b", section="society", state=CardState.SUSPENDED)]
    cards.append(card("anthem", card_id="c", section="economy", state=CardState.CANDIDATE))
    initialise(store, cards, checkpoints={}, config_hash="c")
    assert len(store.read_cards()) == 3
    assert [c.card_id for c in BankSnapshot.open(store).cards] == ["card-anthem"]


def test_a_snapshot_is_opened_for_a_scope_and_a_step(store):
    cards = [card("anthem"), card("currency", dataset="nq"), card("religion", dataset="hotpot"), card("climate", valid_until_step=5)]
    initialise(store, cards, checkpoints={}, config_hash="c")
    assert [c.card_id for c in BankSnapshot.open(store, dataset="nq", step=6).cards] == ["card-anthem", "card-currency"]
    assert len(BankSnapshot.open(store)) == 4


def test_a_damaged_card_is_named(store):
    initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    table = store.table("cards")
    table.update(where="card_id = 'card-anthem'", values={"pattern": "tampered with"})
    row = store.table("boundaries").to_arrow().to_pylist()[0]
    pins = json.loads(row["versions"]) | {"cards": table.version}
    store.table("boundaries").update(where="boundary_id = 0", values={"versions": json.dumps(pins)})
    with pytest.raises(BankError, match="card card-anthem"):
        store.read_cards()


# -- judge replies


def test_a_usable_reply_is_kept_once_and_given_back_as_it_came(store):
    first, second = reply("f/1", draft("anthem")), reply("f/1", draft("currency"))
    store.store_distillation(first)
    store.store_distillation(second)
    assert store.stored_distillations(["f/1", "f/2"], PROMPT, MODEL) == [first]
    assert store.stored_distillations(["f/1"], "another prompt", MODEL) == []
    assert store.stored_distillations(["f/1"], PROMPT, "another judge") == []
    assert store.stored_distillations([], PROMPT, MODEL) == []


def test_every_unsuccessful_call_counts(store):
    for _ in range(2):
        store.store_distillation(reply("f", None, ReplyState.TRUNCATED, "cut"))
    store.store_failed_call("f", PROMPT, MODEL, "connection refused")
    store.store_distillation(reply("it's", draft("anthem")))
    assert store.count_attempts(["f", "it's", "unknown"]) == {"f": 3, "it's": 0, "unknown": 0}
    assert store.stored_distillations(["f"], PROMPT, MODEL) == []


def test_every_reply_that_came_is_kept_in_the_order_in_which_it_came(store):
    came = [reply("f", None, ReplyState.TRUNCATED, "cut"), reply("f", None, ReplyState.UNPARSABLE, "prose"), reply("f", draft("anthem"))]
    early = reply("f", None, ReplyState.EMPTY, "nothing")
    other = reply("a", None, ReplyState.REFUSED, "no")
    for each in came:
        store.store_distillation(each, boundary=4)
    store.store_distillation(other, boundary=5)
    store.store_distillation(early, boundary=3)
    store.store_failed_call("f", PROMPT, MODEL, "connection refused")
    assert [(s.boundary_id, s.reply) for s in store.stored_replies()] == [(5, other), (3, early), *((4, r) for r in came)]
    assert [s.reply for s in reader(store).stored_replies(["a", "unknown"])] == [other]
    assert store.stored_replies([]) == []


def test_threads_and_readers_may_store_replies_at_once(store):
    other = reader(store)

    def work(opened: BankStore, start: int) -> None:
        for i in range(start, start + 5):
            opened.store_distillation(reply(f"f{i % 15}", draft("anthem")))

    threads = [threading.Thread(target=work, args=(opened, start)) for opened, start in ((store, 0), (store, 5), (other, 10), (other, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.stored_distillations([f"f{i}" for i in range(15)], PROMPT, MODEL)) == 15
    assert store.table("distillations").count_rows() == 15
