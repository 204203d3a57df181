"""Each fault of the built-in judge, met by the real client: an error of the right class, a state with its reason, or no harm."""

import asyncio
import time

import pytest

from sesa_core.errors import ConfigError, JudgeRateLimited, JudgeUnavailable
from sesa_core.judge import faults
from sesa_core.judge.base import ReplyState
from sesa_core.judge.faults import FAULTS, Plan
from sesa_core.judge.server import MODEL, running_server
from tests.judge_support import judge_at, wrong_section

ERRORS = {
    "rate_limit": (JudgeRateLimited, "slow down"),
    "rate_limit_after": (JudgeRateLimited, "slow down"),
    "error": (JudgeUnavailable, "the server has failed"),
    "unavailable": (JudgeUnavailable, "Error code: 503"),
    "html": (JudgeUnavailable, "not JSON"),
    "hang": (JudgeUnavailable, "no reply within"),
    "reset": (JudgeUnavailable, "judge at"),
    "cut": (JudgeUnavailable, "judge at"),
}
STATES = {
    "empty": ReplyState.EMPTY,
    "blank": ReplyState.EMPTY,
    "refusal": ReplyState.REFUSED,
    "filtered": ReplyState.FILTERED,
    "truncated": ReplyState.TRUNCATED,
    "prose": ReplyState.UNPARSABLE,
    "wrong_types": ReplyState.UNPARSABLE,
    "ninth_category": ReplyState.UNPARSABLE,
    "huge": ReplyState.UNPARSABLE,
}
HARMLESS = ("fenced", "slow", "no_usage", "tags", "instructions")  # the last two are cards for the gate to refuse


def ask(plan: str, *, calls: int = 1, timeout_s: float = 30.0):
    """What each of so many calls in turn brought: a reply, or the error."""

    async def go(base_url: str) -> list:
        judge, brought = judge_at(base_url, model=MODEL, timeout_s=timeout_s), []
        for _ in range(calls):
            try:
                brought.append(await judge.distill(wrong_section()))
            except JudgeUnavailable as error:
                brought.append(error)
        return brought

    with running_server(faults=plan) as base_url:
        return asyncio.run(go(base_url))


def test_every_fault_is_met_here():
    assert sorted(FAULTS) == sorted([*ERRORS, *STATES, *HARMLESS])


@pytest.mark.parametrize("fault", ERRORS)
def test_a_reply_that_does_not_come_is_an_error_worth_repeating_and_the_next_call_is_answered(fault):
    failed, answered = ask(fault, calls=2, timeout_s=2.0 if fault == "hang" else 30.0)
    kind, says = ERRORS[fault]
    assert type(failed) is kind and says in str(failed)
    assert answered.state is ReplyState.OK and answered.draft is not None
    if kind is JudgeRateLimited:
        assert failed.retry_after == (faults.RETRY_AFTER_SECONDS if fault == "rate_limit_after" else None)


@pytest.mark.parametrize("fault", STATES)
def test_a_reply_that_holds_no_card_has_a_state_a_reason_and_its_price(fault):
    (reply,) = ask(fault)
    assert (reply.state, reply.draft) == (STATES[fault], None) and reply.reason
    assert reply.usage.prompt_tokens > 0


@pytest.mark.parametrize("fault", HARMLESS)
def test_a_reply_in_another_dress_is_read(fault):
    started = time.monotonic()
    (reply,) = ask(fault)
    assert reply.state is ReplyState.OK and reply.draft is not None
    assert (time.monotonic() - started >= faults.SLOW_SECONDS) == (fault == "slow")
    assert (reply.usage.prompt_tokens == 0) == (fault == "no_usage")


def test_a_plan_goes_call_by_call_and_ends_in_good_replies():
    plan = Plan("ok*2, rate_limit*2, html")
    assert [plan.next() for _ in range(7)] == ["ok", "ok", "rate_limit", "rate_limit", "html", "ok", "ok"]
    assert [Plan("").next(), *(p.next() for p in [Plan("error*")] * 3)] == ["ok", "error", "error", "error"]


@pytest.mark.parametrize("text", ["eror", "ok*x", "ok**2", "rate_limit:3"])
def test_a_wrong_plan_is_refused_with_what_is_allowed(text):
    with pytest.raises(ConfigError, match=r"--faults: .* NAME one of ok, empty, "):
        Plan(text)
