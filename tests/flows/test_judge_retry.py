"""Failed judge calls, made again: exactly those, once, whatever the run does meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from prefect.testing.utilities import prefect_test_harness

from flows.composition import open_bank
from flows.judgements import retry_failed
from flows.retry_judgements import retry_failed_judgements
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.verification import verify
from sesa_core.config.load import load_config
from sesa_core.errors import JudgeRateLimited
from sesa_core.judge.client import OpenAIJudge
from sesa_core.judge.faults import Faulty, Plan
from sesa_core.judge.server import create_app
from sesa_core.training.run_folder import create_run
from tasks.judge_batch import JudgeBatch
from tests.bank_support import card, segment_commit
from tests.judge_support import serving, wrong_section

FAILURES = [wrong_section(f"f-{number:02d}") for number in range(20)]
IDS = [f.failure_id for f in FAILURES]


@contextmanager
def run_with_failed_calls(folder, *, max_attempts: int = 5, after: str = "ok") -> Iterator[SimpleNamespace]:
    """A run of one committed segment: the judge answered seven of twenty calls, then said 429. `after` is what it does from then on."""
    app, calls = create_app(), []

    @app.middleware("http")
    async def count(request, forward: Callable):
        calls.append(request.url.path)
        return await forward(request)

    faulty = Faulty(app, Plan(f"ok*7,rate_limit*13,{after}*"))
    with serving(faulty) as address:
        settings = ["judge.concurrency=1", f"judge.base_url={address}", f"queue.max_attempts={max_attempts}", "distill.give_up_after=20"]
        config = load_config(overrides=settings, values={"runs_dir": str(folder)})
        run, judge = create_run(config, "tried"), OpenAIJudge(config.judge, address, None)
        with open_bank(run, config, write=True) as store:
            initialise(store, [card("climate")], checkpoints={}, config_hash="c")
            batch = JudgeBatch(FAILURES, judge, store, config.judge)
            outcomes = asyncio.run(ask_all(batch))
            batch.note({name: outcome for name, outcome in outcomes.items() if isinstance(outcome, JudgeRateLimited)})
            replies = store.stored_distillations(IDS, judge.prompt_hash, judge.model)
            assert (len(replies), batch.rows[0]["calls"], len(batch.rows)) == (7, 1, 13), "seven answers are saved, thirteen are not there"
            attempts = store.count_attempts(IDS)
            policies = {"solver": {"path": "p", "hash": "h"}}
            settled = {"failed_attempts": attempts, "queue": config.queue, "checkpoints": policies}
            segment = segment_commit(1, failures=FAILURES, replies=replies, **settled)
            assert commit_segment(store, segment).failures["consumed"] == 7
        calls.clear()
        yield SimpleNamespace(run=run, config=config, judge=judge, answered=calls, state=lambda: states(run, config))


async def ask_all(batch: JudgeBatch) -> dict:
    return dict(zip(IDS, await asyncio.gather(*map(batch.ask, IDS), return_exceptions=True), strict=True))


def states(run, config) -> dict[str, int]:
    with open_bank(run, config, write=False) as store:
        found = [r.state for r in store.read_failures()]
    return {state: found.count(state) for state in sorted(set(found))}


def test_exactly_the_failed_calls_are_made_again_and_their_cards_become_a_boundary(tmp_path):
    with run_with_failed_calls(tmp_path) as tried:
        assert tried.state() == {"consumed": 7, "pending": 13}
        done = retry_failed(tried.run, by="ada", why="the judge is back")
        assert (done.asked, done.trouble, done.left_to_run, len(tried.answered)) == (13, {}, False, 13)
        assert (done.report.kind, done.report.by, done.report.why, done.report.boundary_id) == ("judge", "ada", "the judge is back", 2)
        assert tried.state() == {"consumed": 20}
        with open_bank(tried.run, tried.config, write=False) as store:
            assert store.last_boundary().checkpoints == {"solver": {"path": "p", "hash": "h"}}, "the policies stay where they were"
            assert len({c.content_hash for c in store.read_cards()}) == len(store.read_cards())
            assert verify(store).agrees
        assert retry_failed(tried.run).as_json() == {"asked": 0, "trouble": {}, "left_to_run": False, "boundary": None}
        assert len(tried.answered) == 13


def test_calls_that_fail_again_are_named_and_change_nothing(tmp_path):
    with run_with_failed_calls(tmp_path, after="unavailable") as tried:
        done = retry_failed(tried.run)
        assert (done.asked, len(done.trouble), done.report) == (13, 13, None)
        assert all("503" in trouble for trouble in done.trouble.values())
        assert tried.state() == {"consumed": 7, "pending": 13}
        with open_bank(tried.run, tried.config, write=False) as store:
            assert store.count_attempts(["f-19"]) == {"f-19": 2} and len(store.boundaries()) == 2


def test_while_the_run_is_trained_the_replies_wait_for_its_next_boundary_and_are_not_paid_twice(tmp_path):
    with run_with_failed_calls(tmp_path) as tried, open_bank(tried.run, tried.config, write=True) as store:
        done = retry_failed(tried.run)
        assert (done.asked, done.left_to_run, done.report) == (13, True, None)
        assert retry_failed(tried.run).asked == 0 and len(tried.answered) == 13
        replies = store.stored_distillations(IDS, tried.judge.prompt_hash, tried.judge.model)
        report = commit_segment(store, segment_commit(2, replies=replies, queue=tried.config.queue))
        assert report.failures["consumed"] == 13, "the seven of before are not consumed again"


def test_failures_that_were_given_up_are_only_asked_about_when_told_to(tmp_path):
    with run_with_failed_calls(tmp_path, max_attempts=1) as tried:
        assert tried.state() == {"consumed": 7, "dead": 13}
        assert (retry_failed(tried.run).asked, len(tried.answered)) == (0, 0)
        assert (retry_failed(tried.run, dead=True).asked, len(tried.answered)) == (13, 13)
        assert tried.state() == {"consumed": 20}


@pytest.mark.long
@pytest.mark.parametrize(("after", "state"), [("ok", "COMPLETED"), ("unavailable", "FAILED")])
def test_the_same_as_a_flow(tmp_path, after, state):
    with run_with_failed_calls(tmp_path, after=after) as tried, prefect_test_harness(server_startup_timeout=120):
        ended = retry_failed_judgements("tried", str(tmp_path), return_state=True)
        assert ended.type.value == state
        assert ended.message.startswith("13 calls, 0 without" if after == "ok" else "13 calls, 13 without")
        assert len(tried.answered) == (13 if after == "ok" else 0)
