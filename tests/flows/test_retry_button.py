"""Retry in the Prefect UI on a batch whose calls failed, pressed at the worst moment: the next boundary's cards are written, it is not.

The batch runs in a worker's process, as a deployment of its own. The test plays the run that is being trained: it holds the run's
folder and its bank, and commits a boundary.
"""

import json
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from flows.composition import open_bank
from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.verification import verify
from sesa_core.config.load import load_config
from sesa_core.judge.client import OpenAIJudge
from sesa_core.judge.faults import Faulty, Plan
from sesa_core.judge.server import create_app
from sesa_core.training.run_folder import create_run, hold
from tests.bank_support import card, segment_commit, use
from tests.flows.conftest import PATIENCE_S
from tests.flows.served import deploy_all, ended, press_retry, start_deployment, worker
from tests.flows.test_fault_matrix import NAMES, called, marked
from tests.judge_support import Watched, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * PATIENCE_S)]
ANSWERED = 2  # of the first five calls; the others are told to come later


class Died(Exception):
    """The run's process is gone."""


@contextmanager
def served_run(prefect_server, tmp_path):
    """A run of one committed segment, whose failures wait; a worker; and the batch's flow run, which ended Failed."""
    at = {"PREFECT_API_URL": prefect_server, "PREFECT_HOME": str(tmp_path / "home")}
    deploy_all(**at)
    judge = Watched(Faulty(create_app(), Plan(f"ok*{ANSWERED},rate_limit*{len(NAMES) - ANSWERED}")))
    with serving(judge) as address, worker(tmp_path / "worker.txt", **at):
        config = load_config(overrides=["judge.retries=0", f"judge.base_url={address}"], values={"runs_dir": str(tmp_path / "runs")})
        run = create_run(config, "tried")
        with open_bank(run, config, write=True) as store:
            initialise(store, [card("climate")], checkpoints={}, config_hash="c")
            commit_segment(store, segment_commit(1, failures=[marked(name) for name in NAMES], queue=config.queue))
        batch = {"run_dir": str(run.path), "number": 1, "failure_ids": NAMES}
        with ExitStack() as alive:
            alive.enter_context(hold(run))
            store = alive.enter_context(open_bank(run, config, write=True))
            flow_run = start_deployment(prefect_server, "distill_batch/distill_batch", batch)
            state, message = ended(prefect_server, flow_run)
            assert state == "FAILED" and message.startswith("3 of 5 judge calls brought no usable reply"), message
            assert "the run is being trained and takes the replies in" in message
            assert sorted(called(judge.bodies)) == NAMES
            reader = OpenAIJudge(config.judge, address, None)
            yield SimpleNamespace(**{"alive": alive, "run": run, "config": config, "store": store, "judge": judge, "reader": reader,
                                     "flow_run": flow_run})  # fmt: skip


def commit(tried, store, number: int, after_write=lambda name: None):
    """The boundary of a segment that used a card once, with every reply that is stored by now."""
    replies = store.stored_distillations(NAMES, tried.reader.prompt_hash, tried.reader.model)
    used = [use("card-climate", "p", (1.0,), step=10)] if number == 2 else []
    return commit_segment(store, segment_commit(number, uses=used, replies=replies, queue=tried.config.queue), after_write=after_write)


def assert_each_failure_became_one_card_or_refusal_and_the_use_counted_once(tried) -> None:
    with open_bank(tried.run, tried.config, write=False) as store:
        assert verify(store).agrees
        assert {r.failure.failure_id: r.state for r in store.read_failures()} == dict.fromkeys(NAMES, "consumed")
        reports = [row.report for row in store.boundaries()[1:]]
        told = [entry["failure_id"] for report in reports for entry in (*report.get("added", ()), *report.get("refused", ()))]
        assert sorted(told) == NAMES
        assert {c.card_id: c.retrieved_count for c in store.read_cards()}["card-climate"] == 1
        assert len(store.read_cards()) == 2, "five failures of one kind are one lesson"


def test_retry_while_the_boundary_is_written(prefect_server, tmp_path):
    with served_run(prefect_server, tmp_path) as tried:

        def press(name: str) -> None:
            if name == "cards":
                press_retry(prefect_server, tried.flow_run)
                state, message = ended(prefect_server, tried.flow_run)
                assert state == "COMPLETED" and "the run is being trained and takes the replies in" in message, message

        report = commit(tried, tried.store, 2, press)
        assert len(report.added) + len(report.refused) == ANSWERED
        assert len(tried.judge.bodies) == 2 * len(NAMES) - ANSWERED, "exactly the three that failed are asked about again"
        assert commit(tried, tried.store, 3).failures["consumed"] == len(NAMES) - ANSWERED
        assert_each_failure_became_one_card_or_refusal_and_the_use_counted_once(tried)


def test_retry_after_the_run_died_between_its_cards_and_its_boundary(prefect_server, tmp_path):
    with served_run(prefect_server, tmp_path) as tried:

        def die(name: str) -> None:
            if name == "cards":
                raise Died

        with pytest.raises(Died):
            commit(tried, tried.store, 2, die)
        tried.alive.close()
        press_retry(prefect_server, tried.flow_run)
        state, message = ended(prefect_server, tried.flow_run)
        assert state == "COMPLETED" and "boundary tried.b-00002, 1 cards added" in message, message
        assert len(tried.judge.bodies) == 2 * len(NAMES) - ANSWERED
        with open_bank(tried.run, tried.config, write=True) as store:  # the run goes on
            recover(store)
            assert commit(tried, store, 2).boundary_id == 3
        assert_each_failure_became_one_card_or_refusal_and_the_use_counted_once(tried)
        assert json.loads(tried.run.judge_table(1).read_text())
