"""A bank's whole life, killed (SIGKILL) at random moments: it goes on where it stood and ends as if nothing had happened.

A process of its own plays the life: each boundary credits, evicts, admits, refuses and leaves pending, as a stream keyed by the
boundary's number decides. A kill comes after a random share of the time that this boundary takes, or, one in five, of the time
that opening and recovery take. The same life without a kill gives the content that every boundary must have.
"""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.segment import SegmentCommit
from sesa_core.bank.store import BankStore
from sesa_core.bank.verification import verify
from sesa_core.cards.schema import Origin
from sesa_core.config.models import BankSettings
from sesa_core.judge.base import ReplyState
from sesa_core.rng import stream
from tests.bank_support import SECTION, card, draft, embedder, failure, reply, segment_commit, use

PATIENCE_S = 600.0  # a starved machine must not make a test lie
SECTIONS = sorted({*SECTION.values(), "history", "trade", "government"})
RULES = BankSettings(credit="uniform", eviction="net_score", max_cards=8)
OPENING = 0  # what a process says before it opens the bank; then the number of each boundary that it starts

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)


def open_bank(folder: Path, *, write: bool = True) -> BankStore:
    return BankStore.open(folder, embedder=embedder(), run="life", write=write)


def evidence(store: BankStore, segment: int) -> SegmentCommit:
    """What segment number `segment` brings: a function of the bank's content and the number alone."""
    rng = stream(0, "life", segment)
    uses = []
    for held in sorted(c.card_id for c in store.read_cards()):
        solved = 0.0 if rng.random() < 0.4 else 1.0
        uses += [use(held, f"p{segment}-{i}", (solved,), step=10 * segment + i) for i in range(int(rng.integers(4)))]
    new = [(f"f{segment}-{i}", sorted(SECTION)[rng.integers(len(SECTION))]) for i in range(int(rng.integers(1, 4)))]
    failures = [failure(name, relation, step=10 * segment) for name, relation in new]
    waiting = {r.failure.failure_id: r.failure for r in store.read_failures() if r.state == "pending"} | {f.failure_id: f for f in failures}
    replies = []
    for name in sorted(waiting):
        if rng.random() < 0.7:
            relation = sorted(SECTION)[rng.integers(len(SECTION))]
            replies.append(reply(name, draft(relation, section=SECTIONS[rng.integers(len(SECTIONS))])))
        else:
            replies.append(reply(name, None, ReplyState.TRUNCATED, "cut"))
    return segment_commit(segment, uses=uses, failures=failures, replies=replies, bank=RULES)


def live(folder: Path, until: int, said: Connection) -> None:
    """Play the life from where it stands up to boundary `until`. Runs in a process of its own."""
    said.send(OPENING)
    with open_bank(folder) as store:
        recover(store)
        for segment in range(store.last_boundary().boundary_id + 1, until + 1):
            said.send(segment)
            commit_segment(store, evidence(store, segment))
    said.send(until + 1)


@dataclass(frozen=True)
class Quiet:
    """A life without a kill: content after each boundary, seconds that each took, seconds to open."""

    hashes: list[str]
    seconds: list[float]
    opening: float


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["great_expectations.expectations", "pandas", "wordllama", "tests.bank_support"])
    return context


def begin(folder: Path) -> None:
    with open_bank(folder) as store:
        initialise(store, [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")], checkpoints={}, config_hash="c")


def quiet_life(processes, folder: Path, boundaries: int) -> Quiet:
    begin(folder)
    heard, said = processes.Pipe(duplex=False)
    process = processes.Process(target=live, args=(folder, boundaries, said))
    process.start()
    times = []
    for expected in range(OPENING, boundaries + 2):
        assert heard.poll(PATIENCE_S) and heard.recv() == expected
        times.append(time.monotonic())
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    took = [after - before for before, after in zip(times, times[1:], strict=False)]
    with open_bank(folder, write=False) as store:
        return Quiet([store.content_hash(b) for b in range(boundaries + 1)], took[1:], took[0])


def live_and_die(processes, folder: Path, at: int, moment: float, quiet: Quiet) -> None:
    """Go on with the life until a share `moment` of boundary `at` (or of the opening) has passed, then SIGKILL."""
    heard, said = processes.Pipe(duplex=False)
    process = processes.Process(target=live, args=(folder, len(quiet.seconds), said))
    process.start()
    while not (heard.poll(PATIENCE_S) and heard.recv() == at):
        assert process.is_alive()
    time.sleep(moment * (quiet.seconds[at - 1] if at else quiet.opening))
    os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE_S)


def kill_often(processes, tmp_path: Path, kills: int, boundaries: int) -> None:
    quiet = quiet_life(processes, tmp_path / "quiet", boundaries)
    assert len(set(quiet.hashes)) == boundaries + 1, "a boundary that changes nothing would prove nothing"
    bank = tmp_path / "bank"
    begin(bank)
    rng, reached, inside = stream(1, "kills"), 0, 0
    for at in sorted(int(b) for b in rng.integers(1, boundaries + 1, size=kills)):
        at = max(at, reached + 1)  # where the boundary was committed before its kill came: the next one
        if at > boundaries or rng.random() < 0.2:
            at = OPENING
        live_and_die(processes, bank, at, float(rng.random()), quiet)
        with open_bank(bank, write=False) as store:
            last = store.last_boundary().boundary_id
            assert last >= reached and store.content_hash() == quiet.hashes[last]
            inside += any(store.table(name).version != version for name, version in store.last_boundary().versions.items())
            reached = last
    print(f"{inside} of {kills} kills left a boundary half written")
    assert inside >= kills // 10, "too few kills hit a boundary between its first write and its last"
    heard, said = processes.Pipe(duplex=False)
    end = processes.Process(target=live, args=(bank, boundaries, said))
    end.start()
    end.join(PATIENCE_S)
    assert end.exitcode == 0
    with open_bank(bank, write=False) as store:
        assert [b.boundary_id for b in store.boundaries()] == list(range(boundaries + 1))
        assert [store.content_hash(b) for b in range(boundaries + 1)] == quiet.hashes
        assert verify(store).agrees


def test_ten_kills_at_random_moments_change_nothing(processes, tmp_path):
    kill_often(processes, tmp_path, kills=10, boundaries=5)


@pytest.mark.long
def test_two_hundred_kills_at_random_moments_of_sixty_boundaries_change_nothing(processes, tmp_path):
    kill_often(processes, tmp_path, kills=200, boundaries=60)
