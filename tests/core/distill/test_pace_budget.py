"""How fast and for how much a judge is called, with numbers worked out by hand."""

import asyncio
import time

import pytest

from sesa_core.config.models import JudgeSettings
from sesa_core.distill.budget import JudgeBudget
from sesa_core.distill.pace import Pace
from sesa_core.errors import JudgeBudgetSpent
from sesa_core.judge.base import Usage

USED = [Usage(100, 20, 0.5), Usage(50, 30, 0.25)]  # 200 tokens, 0.75


def starts(pace: Pace, calls: int) -> list[float]:
    async def go() -> list[float]:
        async def one() -> float:
            await pace.wait()
            return time.monotonic()

        return await asyncio.gather(*(one() for _ in range(calls)))

    return asyncio.run(go())


def test_no_window_holds_more_calls_than_allowed():
    times = starts(Pace(3, 10.0, window_s=0.3), 8)
    assert all(later - earlier >= 0.29 for earlier, later in zip(times, times[3:], strict=False))
    assert times[2] - times[0] < 0.25 and times == sorted(times), "the first three at once, and everybody in turn"


def test_without_a_limit_nobody_waits_but_for_a_judge_that_asked_for_rest():
    pace = Pace(None, longest_wait_s=0.2)
    assert max(starts(pace, 50)) - time.monotonic() < 0.1
    began = time.monotonic()
    pace.rest(3600.0)
    pace.rest(0.01)  # does not shorten the first
    assert 0.19 <= starts(pace, 1)[0] - began < 5


def test_a_call_starts_only_if_all_that_is_in_flight_fits():
    budget = JudgeBudget(JudgeSettings(token_budget=400), USED)
    with budget.call(100) as settle, budget.call(100):
        with (
            pytest.raises(JudgeBudgetSpent, match=r"judge.token_budget of 400 tokens leaves no room for another call \(200 used\)"),
            budget.call(1),
        ):
            pass
        settle(Usage(10, 5, 0.0))
    with budget.call(185), pytest.raises(JudgeBudgetSpent, match="215 used"), budget.call(1):
        pass
    with budget.call(185):
        pass


def test_money_counts_what_a_reply_may_cost():
    budget = JudgeBudget(JudgeSettings(cost_budget=1.0, price_completion=1000.0), USED)  # 0.25 left: 250 tokens
    with budget.call(250):
        pass
    with pytest.raises(JudgeBudgetSpent, match=r"judge.cost_budget of 1 .*0.75 used"), budget.call(251):
        pass


def test_without_a_budget_every_call_is_made():
    with JudgeBudget(JudgeSettings(), USED).call(10**9):
        pass
