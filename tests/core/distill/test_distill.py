"""One judge call, against the real judge server over HTTP: its reply is stored at once. And which failures get one."""

import asyncio
from dataclasses import replace

import pytest
from fastapi import FastAPI

from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.tables import CONSUMED, DEAD, FailureRecord
from sesa_core.config.models import QueueSettings
from sesa_core.distill.distill import distill_one
from sesa_core.distill.select import select_failures, waiting
from sesa_core.errors import BankError, JudgeRejected, JudgeUnavailable
from sesa_core.judge import server
from sesa_core.judge.base import Distillation, ReplyState
from sesa_core.types import Failure
from tests.judge_support import completion, judge_at, serving, wrong_section


def failures(count: int) -> list[Failure]:
    return [wrong_section(f"f-{i:02d}") for i in range(count)]


def test_a_reply_is_stored_before_it_is_given_also_one_without_a_card():
    app = FastAPI()
    app.post("/v1/chat/completions")(lambda: completion("no card here"))
    for server_of, state in ((serving(app), ReplyState.UNPARSABLE), (server.running_server(), ReplyState.OK)):
        stored: list[Distillation] = []
        with server_of as url:
            reply = asyncio.run(distill_one(wrong_section(), judge_at(url), stored.append))
        assert (stored, reply.state) == ([reply], state)
        assert reply.usage.completion_tokens > 0


def test_a_judge_that_is_down_or_refuses_stores_nothing():
    with server.running_server() as url:
        with pytest.raises(JudgeRejected):
            asyncio.run(distill_one(wrong_section(), judge_at(url, model="unknown"), pytest.fail))
        down = judge_at(url)
    with pytest.raises(JudgeUnavailable):
        asyncio.run(distill_one(wrong_section(), down, pytest.fail))


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
