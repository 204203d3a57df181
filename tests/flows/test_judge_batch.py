"""The judge calls of a segment against a real server on loopback: who waits for whom, and what is kept of each call."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from sesa_core.bank.replies import Spent
from sesa_core.bank.store import BankStore
from sesa_core.config.models import DistillSettings, JudgeSettings
from sesa_core.errors import JudgeBudgetSpent, JudgeRateLimited, JudgeResting, JudgeUnavailable, JudgeWaitOver, ServiceError
from sesa_core.judge.client import OpenAIJudge
from sesa_core.judge.faults import Faulty, Plan
from sesa_core.judge.server import create_app
from tasks.judge_batch import JudgeBatch
from tests.bank_support import embedder
from tests.judge_support import Watched, serving, wrong_section

FAILURES = [wrong_section(f"f-{number}") for number in (1, 2)]


@contextmanager
def batch_at(address: str, folder: Path, longest_wait_s: float = 60.0, **changed: object) -> Iterator[JudgeBatch]:
    with BankStore.open(folder / "bank", embedder=embedder(), run="first") as store:
        settings = JudgeSettings(concurrency=1, **changed)
        distill = DistillSettings(give_up_after=2, probe_after_s=0.5)
        judge, file = OpenAIJudge(settings, address, None), folder / "judge.json"
        yield JudgeBatch(FAILURES, judge, store, settings, distill, file, longest_wait_s)


def kept(folder: Path) -> BankStore:
    """The bank of the batch, read beside it."""
    return BankStore.open(folder / "bank", embedder=embedder(), write=False)


def busy_first(retry_after: str) -> tuple[FastAPI, list[float]]:
    """The built-in judge behind a limit: the first call is told to come back later. Also the times of all calls."""
    app, calls, number = create_app(), [], count()

    @app.middleware("http")
    async def limit(request, forward: Callable):
        calls.append(time.monotonic())
        if next(number) == 0:
            return JSONResponse({"error": {"message": "slow down"}}, 429, {"retry-after": retry_after})
        return await forward(request)

    return app, calls


def test_after_a_429_the_whole_batch_leaves_the_judge_alone_for_as_long_as_it_asked(tmp_path):
    app, calls = busy_first("1.5")

    async def ask_both(batch: JudgeBatch) -> list:
        return await asyncio.gather(*(batch.ask(f.failure_id) for f in FAILURES), return_exceptions=True)

    with serving(app) as address, batch_at(address, tmp_path) as batch:
        first, second = asyncio.run(ask_both(batch))
    assert isinstance(first, JudgeRateLimited)
    assert second.draft is not None, "the other failure was not asked about too early"
    assert calls[1] - calls[0] >= 1.4


def test_a_judge_that_asks_for_an_hour_is_not_waited_for_that_long(tmp_path):
    app, calls = busy_first("3600")
    with serving(app) as address, batch_at(address, tmp_path, longest_wait_s=0.2) as batch:
        with pytest.raises(JudgeRateLimited):
            asyncio.run(batch.ask("f-1"))
        asyncio.run(asyncio.wait_for(batch.ask("f-2"), 60))
    assert calls[1] - calls[0] >= 0.15


def test_the_judge_table_is_kept_beside_the_segment_and_says_what_came_of_each_call(tmp_path):
    with serving(create_app()) as address, batch_at(address, tmp_path) as batch:
        asyncio.run(batch.ask("f-1"))
        asyncio.run(batch.ask("f-1"))  # stored: not asked again
        failed = batch.note({"f-1": {"status": "ok", "tokens": 7}, "f-2": ServiceError("it broke")})
    assert failed == 1
    assert json.loads((tmp_path / "judge.json").read_text()) == [
        {"failure": "f-1", "calls": 1, "status": "ok", "tokens": 7},
        {"failure": "f-2", "calls": 0, "status": "it broke", "tokens": 0},
    ]


def test_a_reply_that_was_cut_is_asked_for_again_with_more_room_up_to_a_limit(tmp_path):
    app, caps = create_app(), []

    @app.middleware("http")
    async def note(request, forward: Callable):
        caps.append((await request.json())["max_tokens"])
        return await forward(request)

    limits = {"max_tokens": 100, "most_tokens": 250}
    with serving(Faulty(app, Plan("truncated*3"))) as address, batch_at(address, tmp_path, **limits) as batch:
        states = [asyncio.run(batch.ask("f-1")).state for _ in range(4)]
    assert states == ["truncated", "truncated", "truncated", "ok"], "a cut reply is never made into a card"
    assert caps == [100, 200, 250, 250]


def test_when_the_budget_is_spent_no_call_is_made_and_no_attempt_is_counted(tmp_path):
    with serving(create_app()) as address:
        with batch_at(address, tmp_path, max_tokens=64) as batch:
            used = asyncio.run(batch.ask("f-1")).usage
        tokens = used.prompt_tokens + used.completion_tokens
        with batch_at(address, tmp_path, max_tokens=64, token_budget=tokens + 63) as batch:
            assert asyncio.run(batch.ask("f-1")).draft is not None, "what is paid for costs nothing"
            with pytest.raises(JudgeBudgetSpent, match=f"{tokens} used") as refused:
                asyncio.run(batch.ask("f-2"))
            batch.note({"f-2": refused.value})
            assert batch.rows[0]["calls"] == 0
            assert kept(tmp_path).count_attempts(["f-2"]) == {"f-2": 0}


def test_what_a_reply_costs_is_kept_even_if_nobody_can_read_it(tmp_path):
    prices = {"price_prompt": 2.0, "price_completion": 10.0}
    with serving(Faulty(create_app(), Plan("prose"))) as address, batch_at(address, tmp_path, **prices) as batch:
        reply = asyncio.run(batch.ask("f-1"))
    assert kept(tmp_path).judge_calls() == [Spent("sesa-analyst", "unparsable", reply.usage)]
    assert reply.usage.cost == pytest.approx((2 * reply.usage.prompt_tokens + 10 * reply.usage.completion_tokens) / 1e6)


def test_a_judge_that_is_down_is_given_up_and_tried_again_later(tmp_path):
    watched = Watched(Faulty(create_app(), Plan("unavailable*2")))
    with serving(watched) as address, batch_at(address, tmp_path) as batch:  # given up after 2 calls, tried again .5 s later
        outcomes = [outcome(batch, "f-1"), outcome(batch, "f-2"), outcome(batch, "f-1")]
        assert [type(o) for o in outcomes] == [JudgeUnavailable, JudgeUnavailable, JudgeResting] and len(watched.bodies) == 2
        assert batch.worth_repeating(outcomes[2])
        time.sleep(0.5)
        assert outcome(batch, "f-1").draft is not None and outcome(batch, "f-2").draft is not None


def test_a_call_that_was_not_made_is_no_attempt_and_one_that_was_is(tmp_path):
    with serving(Faulty(create_app(), Plan("unavailable*"))) as address, batch_at(address, tmp_path) as batch:
        called = [outcome(batch, "f-1"), outcome(batch, "f-1")]
        batch.note({"f-1": outcome(batch, "f-1"), "f-2": outcome(batch, "f-2")})
        assert [type(o) for o in called] == [JudgeUnavailable] * 2
        assert [(r["failure"], r["calls"]) for r in batch.rows] == [("f-1", 2), ("f-2", 0)]
        assert all("2 calls in a row" in r["status"] for r in batch.rows)
    with kept(tmp_path) as bank:
        assert bank.count_attempts(["f-1", "f-2"]) == {"f-1": 1, "f-2": 0}
        assert "503" in bank.judge_trouble(["f-1"])["f-1"][0], "what the last call said, not that another was not made"


def test_when_nobody_waits_any_more_no_call_is_started_and_none_is_broken_off(tmp_path):
    async def close_while_one_is_asked(batch: JudgeBatch) -> list:
        first = asyncio.create_task(batch.ask("f-1"))
        await asyncio.sleep(0.5)  # its call takes 2 s
        batch.close_in(0.0)
        return await asyncio.gather(first, batch.ask("f-2"), return_exceptions=True)

    with serving(Faulty(create_app(), Plan("slow"))) as address, batch_at(address, tmp_path) as batch:
        first, second = asyncio.run(close_while_one_is_asked(batch))
        assert first.draft is not None and isinstance(second, JudgeWaitOver)
        assert not batch.worth_repeating(JudgeUnavailable("down")), "the task of a call is not repeated either"


def outcome(batch: JudgeBatch, failure_id: str):
    try:
        return asyncio.run(batch.ask(failure_id))
    except ServiceError as error:
        return error
