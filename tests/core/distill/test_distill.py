"""One judge call: nothing paid twice, nothing lost; against the real judge server over HTTP. And which failures get one."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.tables import CONSUMED, DEAD, FailureRecord
from sesa_core.config.models import QueueSettings
from sesa_core.distill.distill import distill_one, paid_already
from sesa_core.distill.select import select_failures, waiting
from sesa_core.errors import BankError, JudgeRateLimited, JudgeRejected, JudgeUnavailable
from sesa_core.judge import server
from sesa_core.judge.base import Distillation, Judge, ReplyState
from sesa_core.types import Failure
from tests.judge_support import completion, judge_at, serving, wrong_section


def failures(count: int) -> list[Failure]:
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


def ask_all(asked: Iterable[Failure], judge: Judge, stored: dict[str, Distillation]) -> list[JudgeRateLimited]:
    """One call after the other, as a scheduler would; what the rate limit refused."""
    refused = []
    for failure in asked:
        try:
            asyncio.run(distill_one(failure, judge, lambda r: stored.update({r.failure_id: r}), stored.get(failure.failure_id)))
        except JudgeRateLimited as error:
            refused.append(error)
    return refused


def test_twenty_failures_with_rate_limits_from_the_eighth_call_on():
    stored: dict[str, Distillation] = {}
    with serving(limited_from(8)) as url:
        refused = ask_all(failures(20), judge_at(url), stored)
    assert (sorted(stored), len(refused)) == ([f"f-{i:02d}" for i in range(7)], 13)
    assert {e.retry_after for e in refused} == {3.0}, "what a scheduler needs to wait for"

    app = limited_from(1000)
    with serving(app) as url:
        assert ask_all(failures(20), judge_at(url), stored) == []
    assert (len(app.state.seen), len(stored)) == (13, 20)


def test_an_unusable_reply_is_stored_for_its_cost_and_asked_for_again():
    app = FastAPI()
    app.post("/v1/chat/completions")(lambda: completion("no card here"))
    stored: dict[str, Distillation] = {}
    with serving(app) as url:
        assert ask_all(failures(2), judge_at(url), stored) == []
    assert [r.state for r in stored.values()] == [ReplyState.UNPARSABLE] * 2
    assert stored["f-00"].usage.completion_tokens == 7
    with server.running_server() as url:
        assert ask_all(failures(2), judge_at(url), stored) == []
    assert [r.state for r in stored.values()] == [ReplyState.OK] * 2


def test_a_judge_that_is_down_or_refuses_stores_nothing():
    with server.running_server() as url:
        with pytest.raises(JudgeRejected):
            asyncio.run(distill_one(wrong_section(), judge_at(url, model="unknown"), pytest.fail))
        down = judge_at(url)
    with pytest.raises(JudgeUnavailable):
        asyncio.run(distill_one(wrong_section(), down, pytest.fail))


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


def test_a_store_that_fails_is_not_swallowed():
    def full(reply: Distillation) -> None:
        raise BankError("disk full")

    with server.running_server() as url, pytest.raises(BankError, match="disk full"):
        asyncio.run(distill_one(wrong_section(), judge_at(url), full))


def test_nothing_is_selected_until_enough_wait_then_the_best_in_a_fixed_order():
    queue = [PendingFailure(replace(f, failed_count=2 if i == 4 else 1)) for i, f in enumerate(failures(5))]
    settings = QueueSettings(min_pending=5, per_boundary=3)
    assert select_failures(queue[:4], settings) == []
    assert [f.failure_id for f in select_failures(queue, settings)] == ["f-04", "f-00", "f-01"]
    assert select_failures(queue[::-1], settings) == select_failures(queue, settings)


def test_a_problem_waits_once_with_its_newest_evidence_and_never_again_after_its_reply():
    a, b, c, d = failures(4)
    known = [FailureRecord(a, 1, attempts=2), FailureRecord(b, 1, state=CONSUMED), FailureRecord(c, 1, state=DEAD)]
    fresh = [replace(f, step=14, answer="again") for f in (a, b, c, d)]
    queue = {p.failure.failure_id: p for p in waiting(known, fresh)}
    assert sorted(queue) == ["f-00", "f-03"]
    assert (queue["f-00"].failure.answer, queue["f-00"].failure.failed_count, queue["f-00"].attempts) == ("again", 2, 2)
    assert (queue["f-03"].failure.failed_count, queue["f-03"].attempts) == (1, 0)
