"""A bank's whole life, killed (SIGKILL) at random moments: it goes on where it stood and ends as if nothing had happened.

A process of its own plays the life: each boundary credits, evicts, admits, refuses and leaves pending, as a stream keyed by the
boundary's number decides. It says when it opens the bank, begins to plan a boundary, and has made its first write; a kill comes
after a random share of the time that one of these stages takes, half of the kills while a boundary is written. The same life
without a kill gives the content that every boundary must have.
"""

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
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
FIRST_WRITE = "failures"  # of a segment's boundary
Stage = tuple[str, int]  # what begins ("open", "plan", "write" or "end"), and for which boundary (0 with "open" and "end")
OPEN, END = ("open", 0), ("end", 0)

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
    said.send(OPEN)
    with open_bank(folder) as store:
        recover(store)
        for segment in range(store.last_boundary().boundary_id + 1, until + 1):

            def tell(write: str, stage: Stage = ("write", segment)) -> None:
                if write == FIRST_WRITE:
                    said.send(stage)

            said.send(("plan", segment))
            commit_segment(store, evidence(store, segment), after_write=tell)
    said.send(END)


@dataclass(frozen=True)
class Quiet:
    """A life without a kill: content after each boundary, and seconds that each stage took."""

    hashes: list[str]
    seconds: dict[Stage, float]

    @property
    def boundaries(self) -> int:
        return len(self.hashes) - 1


def begin(folder: Path) -> None:
    with open_bank(folder) as store:
        initialise(store, [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")], checkpoints={}, config_hash="c")


def start_life(processes, folder: Path, until: int) -> tuple[BaseProcess, Connection]:
    """A process that plays the life, and what it says; it does not outlive the tests."""
    heard, said = processes.Pipe(duplex=False)
    process = processes.Process(target=live, args=(folder, until, said), daemon=True)
    process.start()
    return process, heard


def quiet_life(processes, folder: Path, boundaries: int) -> Quiet:
    begin(folder)
    process, heard = start_life(processes, folder, boundaries)
    began: dict[Stage, float] = {}
    while END not in began:
        assert heard.poll(PATIENCE_S)
        began[heard.recv()] = time.monotonic()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    times = [*began.values()]
    seconds = dict(zip(began, (after - before for before, after in zip(times, times[1:], strict=False)), strict=False))
    with open_bank(folder, write=False) as store:
        return Quiet([store.content_hash(b) for b in range(boundaries + 1)], seconds)


def live_and_die(processes, folder: Path, stage: Stage, moment: float, quiet: Quiet) -> None:
    """Go on with the life until a share `moment` of `stage` has passed, then SIGKILL."""
    process, heard = start_life(processes, folder, quiet.boundaries)
    while not (heard.poll(PATIENCE_S) and heard.recv() == stage):
        assert process.is_alive()
    time.sleep(moment * quiet.seconds[stage])
    process.kill()  # it may have ended by itself just now
    process.join(PATIENCE_S)


def kill_often(processes, tmp_path: Path, kills: int, boundaries: int) -> None:
    quiet = quiet_life(processes, tmp_path / "quiet", boundaries)
    assert len(set(quiet.hashes)) == boundaries + 1, "a boundary that changes nothing would prove nothing"
    bank = tmp_path / "bank"
    begin(bank)
    rng, reached, inside = stream(1, "kills"), 0, 0
    for at in sorted(int(b) for b in rng.integers(1, boundaries + 1, size=kills)):
        at = max(at, reached + 1)  # where the boundary was committed before its kill came: the next one
        lot = rng.random()
        stage = OPEN if at > boundaries or lot < 0.2 else ("plan", at) if lot < 0.5 else ("write", at)
        live_and_die(processes, bank, stage, float(rng.random()), quiet)
        with open_bank(bank, write=False) as store:
            last = store.last_boundary().boundary_id
            assert last >= reached and store.content_hash() == quiet.hashes[last]
            inside += any(store.table(name).version != version for name, version in store.last_boundary().versions.items())
            reached = last
    print(f"{inside} of {kills} kills left a boundary half written")
    assert inside >= kills // 10, "too few kills hit a boundary between its first write and its last"
    end, _heard = start_life(processes, bank, boundaries)
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
