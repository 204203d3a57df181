"""A writer is killed (SIGKILL) after every single write of a boundary; the bank is always whole.

The kill is real: a process of its own commits and kills itself at a seam between two writes.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.store import BankStore
from sesa_core.cards.schema import Origin
from sesa_core.judge.base import ReplyState
from tests.bank_support import MODEL, PROMPT, card, draft, embedder, failure, reply, segment_commit, use

TAGS = ["tag:cards", "tag:events", "tag:tombstones", "tag:failures"]
START_WRITES = ["cards", "events", *TAGS, "boundary"]
SEGMENT_WRITES = ["failures", "cards", "tombstones", "events", "removals", *TAGS, "boundary"]
RELATIONS = ("currency", "religion", "calling code")


def start_cards():
    return [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")]


def second_segment():
    """Credits two cards, evicts one, admits two, refuses one, leaves one pending."""
    failures = [failure(f"f/{r}", r) for r in (*RELATIONS, "climate")]
    replies = [reply(f"f/{r}", draft(r)) for r in ("currency", "religion", "climate")]
    replies.append(reply("f/calling code", None, ReplyState.TRUNCATED, "cut"))
    uses = [use("card-climate", f"p{i}", (0.0,)) for i in range(3)] + [use("seed-anthem", "p0", (1.0, 0.0))]
    return segment_commit(2, uses=uses, failures=failures, replies=replies)


def open_bank(folder: Path) -> BankStore:
    return BankStore.open(folder, embedder=embedder(), run="kills")


def write(store: BankStore, what: str, after_write) -> None:
    if what == "start":
        initialise(store, start_cards(), checkpoints={}, config_hash="c", after_write=after_write)
    else:
        commit_segment(store, second_segment(), after_write=after_write)


def commit_and_die(folder: Path, what: str, last_write: str) -> None:
    """Runs in a process of its own."""

    def after_write(name: str) -> None:
        if name == last_write:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_bank(folder) as store:
        recover(store)
        store.store_distillation(reply("f/currency", draft("currency")))
        write(store, what, after_write)


def kill(processes, folder: Path, what: str, last_write: str) -> None:
    process = processes.Process(target=commit_and_die, args=(folder, what, last_write))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    """(folder of a bank with boundaries 0 and 1, its hash, hash with boundary 2, hash of boundary 0, names of all writes)."""
    folder = tmp_path_factory.mktemp("banks")
    start_writes, segment_writes = [], []
    with open_bank(folder / "before") as store:
        write(store, "start", start_writes.append)
        first = store.content_hash()
        commit_segment(store, segment_commit(1, failures=[failure("f/0", "anthem")], uses=[use("seed-anthem", "p9", (1.0,))]))
        before = store.content_hash()
    shutil.copytree(folder / "before", folder / "after")
    with open_bank(folder / "after") as store:
        write(store, "segment", segment_writes.append)
        after = store.content_hash()
    assert (start_writes, segment_writes) == (START_WRITES, SEGMENT_WRITES), "a write without a kill"
    return folder / "before", before, after, first


def check_whole(store: BankStore) -> None:
    """Nothing twice, no gap, every failure of the segment settled once."""
    assert [b.boundary_id for b in store.boundaries()] == [0, 1, 2]
    ids = [c.card_id for c in store.read_cards()]
    assert len(ids) == len(set(ids)) == 3 and "card-climate" not in ids
    events = [e["event_id"] for e in store.read_events()]
    assert len(events) == len(set(events))
    states = {r.failure.failure_id: (r.state, r.consumed_boundary) for r in store.read_failures()}
    consumed = {f"f/{r}": ("consumed", 2) for r in ("currency", "religion", "climate")}
    assert states == consumed | {"f/calling code": ("pending", None), "f/0": ("pending", None)}
    assert {c.card_id: c.retrieved_count for c in store.read_cards()}["seed-anthem"] == 2


@pytest.mark.parametrize("last_write", SEGMENT_WRITES)
def test_a_killed_segment_boundary_is_there_in_full_or_not_at_all(banks, processes, tmp_path, last_write):
    template, before, after, _ = banks
    bank = tmp_path / "bank"
    shutil.copytree(template, bank)
    kill(processes, bank, "segment", last_write)
    with open_bank(bank) as store:
        committed = last_write == "boundary"
        assert store.content_hash() == (after if committed else before)
        recover(store)
        assert store.content_hash() == (after if committed else before)
        assert [r.failure_id for r in store.stored_distillations(["f/currency"], PROMPT, MODEL)] == ["f/currency"]
        report = commit_segment(store, second_segment())
        assert (report.boundary_id, len(report.added), len(report.evicted)) == (2, 2, 1)
        assert store.content_hash() == after and store.content_hash(1) == before
        check_whole(store)


@pytest.mark.parametrize("last_write", START_WRITES)
def test_a_killed_start_is_made_again(banks, processes, tmp_path, last_write):
    *_, first = banks
    kill(processes, tmp_path / "bank", "start", last_write)
    with open_bank(tmp_path / "bank") as store:
        assert (store.last_boundary() is not None) == (last_write == "boundary")
        assert initialise(store, start_cards(), checkpoints={}, config_hash="c").boundary_id == 0
        assert store.content_hash() == first and len(store.boundaries()) == 1
