"""A failure's way through the queue: only its own usable reply consumes it."""

import pytest

from sesa_core.bank.failures import settle
from sesa_core.bank.tables import CONSUMED, DEAD, DROPPED, PENDING, FailureRecord, failure_from
from sesa_core.config.models import QueueSettings
from sesa_core.judge.base import ReplyState
from tests.bank_support import draft, failure, reply, shown

SETTINGS = QueueSettings(capacity=3, max_attempts=2)


def settled(known=(), fresh=(), replies=(), failed=None, settings=SETTINGS):
    return settle({r.failure.failure_id: r for r in known}, fresh, replies, failed or {}, settings, 7)


def states(result) -> dict[str, str]:
    return {k: r.state for k, r in result.changed.items()}


def test_new_failures_are_taken_in_once():
    result = settled(known=[FailureRecord(failure("a"), 3)], fresh=[failure("a"), failure("b")])
    assert states(result) == {"b": PENDING}
    assert result.changed["b"].boundary_id == 7
    assert (result.counts["new"], result.counts["pending"]) == (1, 2)


def test_a_usable_reply_consumes_its_own_failure_alone():
    result = settled(fresh=[failure("a"), failure("b")], replies=[reply("b", draft("anthem"))])
    assert states(result) == {"a": PENDING, "b": CONSUMED}
    assert result.changed["b"].consumed_boundary == 7
    assert [r.failure_id for r in result.replies] == ["b"]


@pytest.mark.parametrize("state", [s for s in ReplyState if s is not ReplyState.OK])
def test_any_other_reply_leaves_it_pending_with_one_more_attempt(state):
    result = settled(known=[FailureRecord(failure("a"), 3)], replies=[reply("a", None, state, "cut off")])
    record = result.changed["a"]
    assert (record.state, record.attempts, record.reason) == (PENDING, 1, f"{state}: cut off")
    assert result.replies == ()


def test_attempts_add_up_to_the_dead_letter_list():
    worn = FailureRecord(failure("a"), 3, attempts=1)
    assert settled(known=[worn], replies=[reply("a", None, ReplyState.EMPTY)]).changed["a"].state == DEAD
    assert settled(known=[worn], failed={"a": 2}).changed["a"].state == DEAD


def test_attempts_given_in_all_are_not_added_to_those_of_the_row():
    worn = FailureRecord(failure("a"), 3, attempts=1)
    assert settled(known=[worn], failed={"a": 1}).changed == {}


def test_a_consumed_failure_is_never_consumed_again():
    done = FailureRecord(failure("a"), 3, state=CONSUMED, consumed_boundary=4)
    result = settled(known=[done], fresh=[failure("a")], replies=[reply("a", draft("anthem"))])
    assert (result.changed, result.replies, result.counts["replies_not_used"]) == ({}, (), 1)


@pytest.mark.parametrize("state", [DROPPED, DEAD])
def test_a_reply_that_was_paid_for_counts_even_for_a_failure_that_had_left(state):
    result = settled(known=[FailureRecord(failure("a"), 3, state=state, attempts=2)], replies=[reply("a", draft("anthem"))])
    assert states(result) == {"a": CONSUMED}


def test_a_reply_about_an_unknown_failure_is_counted_and_not_used():
    result = settled(replies=[reply("nobody", draft("anthem"))])
    assert (result.replies, result.counts["replies_not_used"]) == ((), 1)


def test_when_full_the_least_informative_is_recorded_as_dropped():
    waiting = [FailureRecord(failure(n, failed_count=2), 3) for n in "abc"]
    result = settled(known=waiting, fresh=[failure("d", shown_cards=(shown("c"),)), failure("e")])
    assert states(result) == {"c": DROPPED, "d": PENDING, "e": DROPPED}
    assert result.changed["e"].reason == "queue full at boundary 7"
    assert (result.counts["dropped"], result.counts["pending"]) == (2, 3)


def test_a_failure_with_its_reply_is_not_dropped_however_full_the_queue_is():
    waiting = [FailureRecord(failure(n, failed_count=2), 3) for n in "abc"]
    result = settled(known=waiting, fresh=[failure("d")], replies=[reply("d", draft("anthem"))])
    assert states(result) == {"d": CONSUMED}


def test_a_failure_survives_its_row():
    record = FailureRecord(failure("a", shown_cards=(shown("c"),)), 3, attempts=1)
    assert FailureRecord.of(record.row()) == record
    assert failure_from({**record.failure.__dict__, "evidence": [], "problem_evidence": [], "shown_cards": []}).evidence == ()


def test_a_problem_that_fails_again_while_it_waits_is_one_failure_with_its_newest_evidence():
    first = failure("a", step=3, answer="old", failed_count=2)
    again = failure("a", step=12, answer="new", failed_count=1, shown_cards=(shown("c"),))
    result = settled(known=[FailureRecord(first, 3, attempts=1, reason="cut")], fresh=[again])
    record = result.changed["a"]
    assert (record.failure.answer, record.failure.step, record.failure.failed_count) == ("new", 12, 3)
    assert (record.state, record.attempts, record.reason, record.boundary_id) == (PENDING, 1, "cut", 3)
    assert (result.counts["new"], result.counts["pending"]) == (0, 1)
    assert settled(known=[record], fresh=[again]).changed == {}, "applied twice, the same step changes nothing"


def test_failures_of_one_problem_within_a_segment_add_up_in_the_order_of_their_steps():
    fresh = [failure("a", step=9, answer="new"), failure("a", step=8, answer="old")]
    result = settled(fresh=fresh)
    assert (result.changed["a"].failure.answer, result.changed["a"].failure.failed_count) == ("new", 2)
    assert result.counts["new"] == 1


def test_a_dropped_problem_that_fails_again_waits_again_and_a_settled_one_does_not():
    dropped, dead, done = (FailureRecord(failure("a", step=1), 3, state=s, reason="why") for s in (DROPPED, DEAD, CONSUMED))
    again = failure("a", step=12)
    record = settled(known=[dropped], fresh=[again]).changed["a"]
    assert (record.state, record.reason, record.failure.failed_count) == (PENDING, "", 2)
    assert settled(known=[dead], fresh=[again]).changed == settled(known=[done], fresh=[again]).changed == {}
