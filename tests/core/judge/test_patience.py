import asyncio

import pytest

from sesa_core.errors import JudgeRateLimited, JudgeRejected, JudgeResting, JudgeUnavailable
from sesa_core.judge.patience import Patience

DOWN, BUSY, REFUSED = JudgeUnavailable("down"), JudgeRateLimited("later"), JudgeRejected("too long")


@pytest.mark.parametrize(
    ("outcomes", "asked"),
    [
        ((DOWN, DOWN, "yes"), 2),  # the third is not asked any more
        ((DOWN, "yes", DOWN, DOWN, "yes"), 4),
        ((DOWN, REFUSED, DOWN, BUSY, DOWN, "yes"), 6),  # who refuses is there
        ((REFUSED,) * 4, 4),
    ],
)
def test_a_judge_that_leaves_calls_in_a_row_without_an_answer_is_asked_no_more(outcomes, asked):
    made = []

    async def call(outcome):
        made.append(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def batch():
        patience = Patience(concurrency=1, give_up_after=2)
        return await asyncio.gather(*(patience.ask(lambda o=o: call(o)) for o in outcomes), return_exceptions=True)

    brought = asyncio.run(batch())
    assert len(made) == asked
    assert brought[:asked] == list(outcomes[:asked])
    assert all(isinstance(b, JudgeResting) and "2 calls in a row" in str(b) for b in brought[asked:])
