"""Every fault of a judge, once or for ever, with and without a crash in the middle: nothing is lost, invented or paid for twice.

A cell is a run of one committed segment whose failures wait. The batch flow is asked about them, on a started Prefect server and
over HTTP, while the judge misbehaves; in half of the cells its process is killed (SIGKILL) between two calls. Then the outage is
over and it is asked again, as a Retry does.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from flows.composition import open_bank
from flows.distillation import distill_batch
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.verification import verify
from sesa_core.config.load import load_config
from sesa_core.config.models import RunConfig
from sesa_core.judge.faults import FAULTS, Faulty, Plan
from sesa_core.judge.server import create_app
from sesa_core.training.run_folder import RunFolder, create_run
from tests.bank_support import card, segment_commit
from tests.flows.conftest import PATIENCE_S, wait_for
from tests.judge_support import CORDOBA_EUROPE, SPAIN_CULTURE, SPAIN_ECONOMY, Watched, failure, serving

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)
NAMES = [f"f-{number:02d}" for number in range(5)]
USABLE = {"fenced", "slow", "no_usage", "tags", "instructions"}  # faults with which a reply still comes
REFUSED = {"tags", "instructions"}  # and of these, replies whose cards the gate refuses
SAMPLE = {("rate_limit", "always", "killed"), ("cut", "once", "whole")}
KILL_AT = 3  # calls that the judge has heard


def marked(name: str):
    """A failure that can be told from the others in what the judge is sent."""
    seen = [(f"Marker {name}", "Nothing."), CORDOBA_EUROPE, SPAIN_ECONOMY]
    question = "What is the anthem of the country of the city Cordoba in Europe?"
    return failure(question, "Marcha Real", "Euro", ["Cordoba Europe", "Spain economy"], seen, [SPAIN_CULTURE], failure_id=name)


@dataclass(frozen=True)
class Cell:
    """One run with its judge. `prefect` is the server's address."""

    run: RunFolder
    config: RunConfig
    judge: Watched
    prefect: str

    def ask(self) -> list[str]:
        """Ask about every failure, in this process; whom the judge was called about."""
        before = len(self.judge.bodies)
        ask_all(str(self.run.path), self.prefect)
        return called(self.judge.bodies[before:])

    def ask_and_be_killed(self, processes) -> list[str]:
        process = processes.Process(target=ask_all, args=(str(self.run.path), self.prefect), daemon=True)
        process.start()
        wait_for(lambda: len(self.judge.bodies) >= KILL_AT or not process.is_alive())
        process.kill()
        process.join(PATIENCE_S)
        return called(self.judge.bodies)

    def answered(self) -> set[str]:
        """Failures about which a usable reply is stored."""
        with open_bank(self.run, self.config, write=False) as store:
            rows = store.table("distillations").to_arrow().to_pylist()
        usable = Counter(row["failure_id"] for row in rows if row["state"] == "ok")
        assert set(usable.values()) <= {1}, "no failure was answered twice"
        return set(usable)

    def states(self) -> dict[str, str]:
        with open_bank(self.run, self.config, write=False) as store:
            assert verify(store).agrees
            return {r.failure.failure_id: r.state for r in store.read_failures()}

    def cards(self) -> int:
        with open_bank(self.run, self.config, write=False) as store:
            return len(store.read_cards())


def ask_all(run_dir: str, prefect: str) -> None:
    home = Path(run_dir) / "prefect-results"
    with temporary_settings({PREFECT_API_URL: prefect, PREFECT_LOCAL_STORAGE_PATH: home}):
        asyncio.run(distill_batch(run_dir, 0, NAMES, return_state=True))


def called(bodies: Sequence[str]) -> list[str]:
    return [re.search(r"Marker (f-\d\d)", body)[1] for body in bodies]


@pytest.fixture
def cell(request, prefect_server, tmp_path):
    """A judge that follows `request.param` as its plan, and a run whose failures wait for it."""
    judge = Watched(Faulty(create_app(), Plan(request.param)))
    with ExitStack() as stack:
        address = stack.enter_context(serving(judge))
        hurry = ["judge.concurrency=2", "judge.retries=1", "judge.retry_delay_s=0.01", "judge.timeout_s=4", f"judge.base_url={address}"]
        config = load_config(overrides=hurry, values={"runs_dir": str(tmp_path)})
        run = create_run(config, "tried")
        with open_bank(run, config, write=True) as store:
            initialise(store, [card("climate")], checkpoints={}, config_hash="c")
            commit_segment(store, segment_commit(1, failures=[marked(name) for name in NAMES], queue=config.queue))
        yield Cell(run, config, judge, prefect_server)


def cells():
    for fault in FAULTS:
        for often in ("once", "always"):
            for end in ("whole", "killed"):
                marks = [] if (fault, often, end) in SAMPLE else [pytest.mark.long]
                plan = f"ok,{fault}" if often == "once" else f"{fault}*"
                yield pytest.param(plan, fault, often, end, marks=marks, id=f"{fault}-{often}-{end}")


@pytest.mark.parametrize(("cell", "fault", "often", "end"), list(cells()), indirect=["cell"])
def test_no_failure_is_lost_no_card_invented_and_no_call_repeated(cell, fault, often, end, processes):
    if end == "killed":
        cell.ask_and_be_killed(processes)
    else:
        cell.ask()
    paid = cell.answered()
    if often == "always" and fault not in USABLE:
        assert paid == set(), "where no usable reply came, none is stored"
    again = cell.ask()
    assert not paid & set(again), "what is stored is not asked for again"
    paid = cell.answered()
    assert cell.states() == {name: "consumed" if name in paid else "pending" for name in NAMES}
    assert cell.cards() == 1 + bool(paid and not (fault in REFUSED and often == "always")), "one lesson, and only if a judge has written it"

    cell.judge.app = create_app()  # the outage is over
    assert sorted(cell.ask()) == sorted(set(NAMES) - paid), "exactly those that failed, once each"
    assert set(cell.states().values()) == {"consumed"}
    assert cell.ask() == []
