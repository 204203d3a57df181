"""Many processes at one bank: nothing twice, nothing lost, and who cannot write now is told so and tries again.

A writer holds the bank's lock from opening to closing, so "at once" means that all are started together and each repeats until
it was let in.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sesa_core.bank.exchange.records import Record
from sesa_core.cards.schema import SkillCard
from sesa_core.errors import BankBusy
from tests.bank_support import card, embedder, segment_commit, use

if TYPE_CHECKING:
    from sesa_core.bank.bank import Bank

pytestmark = pytest.mark.timeout(900)  # a starved machine must not make a test lie
PATIENCE_S = 600.0
CARDS = 1000


def thousand_records() -> list[Record]:
    """Different lessons with vectors of their own: made here, so that no process embeds."""
    rng = np.random.Generator(np.random.Philox(0))
    matrix = rng.standard_normal((CARDS, 256)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return [Record(_numbered(i, vector)) for i, vector in enumerate(matrix)]


def _numbered(i: int, vector: np.ndarray) -> SkillCard:
    lesson = card("anthem", card_id=f"card-{i:04d}", pattern=f"The question is of kind {i}.", run="r")
    return lesson.model_copy(update={"vector": tuple(vector.tolist())})


@contextmanager
def opened_in_time(folder: Path) -> Iterator["Bank"]:
    """The bank, as soon as nobody else writes it."""
    from sesa_core.bank.bank import Bank
    from sesa_core.config.models import BankSettings

    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        while True:
            try:
                bank = stack.enter_context(Bank.open(folder, embedder(), by="many", run="r", settings=BankSettings(max_cards=2 * CARDS)))
                break
            except BankBusy:
                assert time.monotonic() < deadline, "never let in"
                time.sleep(0.05)
        yield bank


def take_in_all(folder: Path, added) -> None:
    with opened_in_time(folder) as bank:
        added.put(len(bank.take_in_records(thousand_records()).added))


def add_to_counter(folder: Path, number: int, uses: int) -> None:
    from sesa_core.bank.boundary import commit_segment

    for segment in range(number * uses + 1, (number + 1) * uses + 1):
        with opened_in_time(folder) as bank:
            commit_segment(bank.store, segment_commit(segment, uses=[use("card-anthem", f"problem-{segment}", (1.0,), step=segment)]))


def new_bank(folder: Path) -> None:
    from sesa_core.bank.boundary import initialise

    with opened_in_time(folder) as bank:
        initialise(bank.store, [card("anthem")], checkpoints={}, config_hash="c")


def run_all(processes, target, arguments: list[tuple]) -> None:
    started = [processes.Process(target=target, args=given) for given in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join(PATIENCE_S)
        assert process.exitcode == 0


@pytest.mark.long
def test_sixteen_processes_that_take_in_the_same_thousand_cards_leave_a_thousand(processes, tmp_path):
    added = processes.SimpleQueue()
    run_all(processes, take_in_all, [(tmp_path / "bank", added)] * 16)
    assert sorted(added.get() for _ in range(16)) == [0] * 15 + [CARDS]
    with opened_in_time(tmp_path / "bank") as bank:
        assert [c.card_id for c in bank.cards()] == [f"card-{i:04d}" for i in range(CARDS)]
        assert bank.store.table("cards").count_rows() == CARDS
        assert [b.kind for b in bank.boundaries()] == ["start", "person"], "who had nothing new to add made no boundary"


def test_eight_processes_that_add_to_one_counter_lose_nothing(processes, tmp_path):
    new_bank(tmp_path / "bank")
    run_all(processes, add_to_counter, [(tmp_path / "bank", number, 1) for number in range(8)])
    with opened_in_time(tmp_path / "bank") as bank:
        counted = bank.card("card-anthem")
        assert (counted.retrieved_count, counted.helpful_count) == (8, 8)
        assert [b.boundary_id for b in bank.boundaries()] == list(range(9))
        assert sum(e["kind"] == "use" for e in bank.store.read_events()) == 8


def hold(folder: Path, held, let_go) -> None:
    with opened_in_time(folder):
        held.set()
        let_go.wait(PATIENCE_S)


def test_a_second_boundary_writer_is_refused_by_name_while_readers_read_on(processes, tmp_path):
    from sesa_core.bank.bank import Bank

    new_bank(tmp_path / "bank")
    held, let_go = processes.Event(), processes.Event()
    holder = processes.Process(target=hold, args=(tmp_path / "bank", held, let_go))
    holder.start()
    try:
        assert held.wait(PATIENCE_S)
        refused = pytest.raises(BankBusy, match=r"is being written by many \(run r\); wait for it to end, or read only")
        with refused, Bank.open(tmp_path / "bank", embedder(), by="late"):
            pass
        with Bank.open(tmp_path / "bank", embedder(), write=False) as reader:
            assert [c.card_id for c in reader.cards()] == ["card-anthem"]
    finally:
        let_go.set()
        holder.join(PATIENCE_S)
    assert holder.exitcode == 0
    with Bank.open(tmp_path / "bank", embedder(), by="late") as late:
        assert late.suspend(["card-anthem"]).boundary_id == 1
