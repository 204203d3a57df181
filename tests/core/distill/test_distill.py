"""A batch of judge calls: nothing paid twice, nothing lost, the order of ids; against the real judge server over HTTP."""

import asyncio
from dataclasses import replace

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sesa_core.bank.queue import PendingFailure
from sesa_core.config.models import QueueSettings
from sesa_core.distill.distill import distill_failures, distill_one, paid_already
from sesa_core.distill.select import select_failures
from sesa_core.errors import BankError, JudgeRateLimited
from sesa_core.judge import server
from sesa_core.judge.base import Distillation, ReplyState, Usage
from tests.judge_support import completion, judge_at, serving, wrong_section


def failures(count: int) -> list:
    return [wrong_section(f"f-{i:02d}") for i in range(count)]


def limited_from(call: int) -> FastAPI:
    """The built-in judge, which answers 429 from the `call`-th request on (counted from 1)."""
    app, seen = server.create_app(), []

    @app.middleware("http")
    async def limit(request: Request, call_next):
        seen.append(request.url.path)
        if len(seen) >= call:
            return JSONResponse({"error": {"message": "quota"}}, 429, headers={"retry-after": "3"})
        return await call_next(request)

    app.state.seen = seen
    return app


def test_twenty_failures_with_rate_limits_from_the_eighth_call_on():
    stored: dict[str, Distillation] = {}
    with serving(limited_from(8)) as url:
        first = asyncio.run(distill_failures(failures(20), judge_at(url), lambda r: stored.update({r.failure_id: r}), concurrency=1))
    assert (len(first.usable), len(first.outages), first.calls, first.reused) == (7, 13, 20, 0)
    assert len(stored) == 7
    assert {o.retry_after for o in first.outages} == {3.0}
    assert not any(o.permanent for o in first.outages)
    assert first.unfinished == tuple(f"f-{i:02d}" for i in range(7, 20))

    app = limited_from(1000)
    with serving(app) as url:
        again = asyncio.run(distill_failures(failures(20), judge_at(url), lambda r: stored.update({r.failure_id: r}), stored=dict(stored)))
    assert len(app.state.seen) == 13
    assert (len(again.usable), again.outages, again.calls, again.reused) == (20, (), 13, 7)
    assert [r.failure_id for r in again.replies] == [f"f-{i:02d}" for i in range(20)]


def test_at_most_so_many_calls_are_in_flight_and_each_reply_is_stored_on_arrival():
    app, now, most, others, arrivals = FastAPI(), [0], [0], [], []

    @app.post("/v1/chat/completions")
    async def reply(request: Request) -> dict:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.05)
        if "the slow one" in (await request.json())["messages"][1]["content"]:
            while len(others) < 5:
                await asyncio.sleep(0.01)
        else:
            others.append(1)
        now[0] -= 1
        return completion("no card")

    batch = failures(6)
    batch[0] = replace(batch[0], question="the slow one")
    with serving(app) as url:
        result = asyncio.run(distill_failures(batch, judge_at(url), lambda r: arrivals.append(r.failure_id), concurrency=3))
    assert most[0] == 3
    assert arrivals.index("f-00") >= 3
    assert [r.failure_id for r in result.replies] == sorted(arrivals)


def test_an_unusable_reply_is_stored_for_its_cost_and_asked_for_again():
    app = FastAPI()
    app.post("/v1/chat/completions")(lambda: completion("no card here"))
    stored: dict[str, Distillation] = {}
    with serving(app) as url:
        bad = asyncio.run(distill_failures(failures(2), judge_at(url), lambda r: stored.update({r.failure_id: r})))
    assert [r.state for r in bad.replies] == [ReplyState.UNPARSABLE] * 2
    assert stored["f-00"].usage.completion_tokens == 7
    assert (bad.usable, bad.unfinished) == ((), ("f-00", "f-01"))
    with server.running_server() as url:
        good = asyncio.run(distill_failures(failures(2), judge_at(url), lambda r: None, stored=stored))
    assert (good.calls, len(good.usable), good.unfinished) == (2, 2, ())


def test_a_judge_that_is_down_or_refuses_leaves_every_failure_pending():
    with server.running_server() as url:
        refused = asyncio.run(distill_failures(failures(3), judge_at(url, model="unknown"), pytest.fail))
    down = asyncio.run(distill_failures(failures(3), judge_at(url), pytest.fail))
    assert [o.permanent for o in refused.outages] == [True] * 3
    assert [o.permanent for o in down.outages] == [False] * 3
    assert refused.unfinished == down.unfinished == ("f-00", "f-01", "f-02")
    assert refused.replies == down.replies == ()


def test_a_reply_of_another_prompt_or_model_does_not_stand_for_a_call():
    judge = judge_at("http://127.0.0.1:1/v1")
    reply = asyncio.run(_builtin_reply())
    assert paid_already(reply, judge)
    for other in (replace(reply, prompt_hash="0"), replace(reply, model="gpt"), replace(reply, state=ReplyState.REFUSED, draft=None), None):
        assert not paid_already(other, judge)
    assert asyncio.run(distill_one(wrong_section(), judge, pytest.fail, stored=reply)) is reply


async def _builtin_reply() -> Distillation:
    with server.running_server() as url:
        return await judge_at(url).distill(wrong_section())


def test_one_failure_raises_what_a_scheduler_needs_to_wait_for():
    with serving(limited_from(1)) as url, pytest.raises(JudgeRateLimited) as caught:
        asyncio.run(distill_one(wrong_section(), judge_at(url), pytest.fail))
    assert caught.value.retry_after == 3.0


def test_a_store_that_fails_is_not_swallowed():
    def full(reply: Distillation) -> None:
        raise BankError("disk full")

    with server.running_server() as url, pytest.raises(BankError, match="disk full"):
        asyncio.run(distill_failures(failures(4), judge_at(url), full, concurrency=2))


def test_the_same_failure_twice_is_asked_about_once():
    stored = []
    with server.running_server() as url:
        result = asyncio.run(distill_failures([wrong_section(), wrong_section()], judge_at(url), stored.append))
    assert (result.calls, len(result.replies), len(stored)) == (1, 1, 1)


def test_an_empty_batch_makes_no_call():
    result = asyncio.run(distill_failures([], judge_at("http://127.0.0.1:1/v1"), pytest.fail))
    assert (result.replies, result.outages, result.calls) == ((), (), 0)
    assert Usage().cost == 0


def test_nothing_is_selected_until_enough_wait_then_the_best_in_a_fixed_order():
    waiting = [PendingFailure(replace(f, failed_count=2 if i == 4 else 1)) for i, f in enumerate(failures(5))]
    settings = QueueSettings(min_pending=5, per_boundary=3)
    assert select_failures(waiting[:4], settings) == []
    assert [f.failure_id for f in select_failures(waiting, settings)] == ["f-04", "f-00", "f-01"]
    assert select_failures(waiting[::-1], settings) == select_failures(waiting, settings)
