"""Counters worked out by hand."""

import pytest

from sesa_core.bank.credit import HALF_LIFE_STEPS, Outcome, apply_uses, credited, outcome, use_key
from tests.bank_support import card, use

ANTHEM = card("anthem")


@pytest.mark.parametrize(
    ("rewards", "substantive", "expected"),
    [
        ((0.0, 1.0, 0.0), True, Outcome.HELPFUL),
        ((1.0,), False, Outcome.HELPFUL),
        ((0.0, 0.0), True, Outcome.HURT),
        ((0.0, 0.0), False, Outcome.NEUTRAL),
        ((), True, Outcome.NEUTRAL),
    ],
)
def test_what_a_use_says_about_its_card(rewards, substantive, expected):
    assert outcome(use("c", "p", rewards, substantive=substantive)) is expected


def test_rollouts_without_the_card_do_not_count_for_it():
    assert outcome(use("c", "p", (0.0,), without=(1.0, 1.0))) is Outcome.HURT


def test_a_segment_adds_up():
    uses = [
        use("card-anthem", "p1", (0.0, 1.0), step=2),
        use("card-anthem", "p2", (0.0, 0.0), step=4),
        use("card-anthem", "p3", (0.0,), step=4, substantive=False),
        use("card-anthem", "p4", (0.0,), step=6),
    ]
    credit = apply_uses({"card-anthem": ANTHEM}, uses, ())
    after = credit.cards["card-anthem"]
    assert (after.retrieved_count, after.helpful_count, after.hurt_count, after.net) == (4, 1, 2, -1)
    assert (after.credit_helpful, after.credit_hurt) == (1.0, 2.0)
    assert (after.last_retrieved_step, after.last_helped_step, after.policy_version) == (6, 2, 3)
    assert credit.counts == {"applied": 4, "repeated": 0, "unknown_card": 0, "helpful": 1, "hurt": 2, "neutral": 1}


def test_a_problem_counts_once_per_card_for_ever():
    uses = [use("card-anthem", "p1", (1.0,), step=2), use("card-anthem", "p1", (0.0,), step=5)]
    credit = apply_uses({"card-anthem": ANTHEM}, uses, ())
    assert (credit.cards["card-anthem"].retrieved_count, credit.counts["repeated"]) == (1, 1)
    again = apply_uses(credit.cards, uses, {use_key(u) for u in credit.uses})
    assert (again.cards, again.uses, again.counts["repeated"]) == ({}, (), 2)


def test_the_order_of_arrival_does_not_matter():
    uses = [use("card-anthem", f"p{i}", (i % 2,), step=i) for i in range(6)]
    assert apply_uses({"card-anthem": ANTHEM}, uses, ()) == apply_uses({"card-anthem": ANTHEM}, uses[::-1], ())


def test_a_card_that_has_left_earns_nothing():
    credit = apply_uses({}, [use("gone", "p", (1.0,))], ())
    assert (credit.cards, credit.uses, credit.counts["unknown_card"]) == ({}, (), 1)


def test_recent_counters_fade_by_half_in_a_half_life():
    once = credited(ANTHEM, use("card-anthem", "p1", (1.0,), step=10))
    assert (once.recent_retrieved, once.recent_helpful, once.recent_hurt) == (1.0, 1.0, 0.0)
    later = credited(once, use("card-anthem", "p2", (0.0,), step=10 + int(HALF_LIFE_STEPS)))
    assert (later.recent_retrieved, later.recent_helpful, later.recent_hurt) == pytest.approx((1.5, 0.5, 1.0))
