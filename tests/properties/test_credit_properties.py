"""Whatever the evidence: credit is the same again, in any order and in parts, and the shared counters never depend on the rule."""

import math
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.bank.credit import CREDIT_RULES, apply_uses, credited, use_key
from sesa_core.bank.credit.contrastive import contrastive
from sesa_core.bank.credit.uplift import harm_evidence, upper_bound
from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse
from tests.bank_support import card

CARDS = {c.card_id: c for c in (card("anthem"), card("climate"))}
SHARED = ("retrieved_count", "helpful_count", "hurt_count", "recent_retrieved", "recent_helpful", "recent_hurt")
SHARED += ("last_retrieved_step", "last_helped_step", "policy_version")
SUMS = ("uplift_sum", "uplift_weight", "uplift_chance", "uplift_squares", "uplift_mean", "uplift_var")
QUICK = settings(max_examples=60, deadline=None)  # a busy machine is no failure
RULES = pytest.mark.parametrize("rule", CREDIT_RULES.values(), ids=CREDIT_RULES)

rewards = st.lists(st.sampled_from([0.0, 0.25, 1.0]), max_size=8).map(tuple)


@st.composite
def a_use(draw) -> CardUse:
    name, problem, step = draw(st.sampled_from([*CARDS, "gone"])), draw(st.integers(0, 5)), draw(st.integers(0, 120))
    near, substantive = draw(st.floats(-1, 1)), draw(st.booleans())
    return CardUse(f"use/{step}/{problem}/{name}", name, f"p{problem}", step, step // 10, near, draw(rewards), draw(rewards), substantive)


def distinct(uses: list[CardUse]) -> list[CardUse]:
    return list({u.event_id: u for u in uses}.values())


evidence = st.lists(a_use(), max_size=25).map(distinct)


@RULES
@QUICK
@given(evidence, st.randoms(use_true_random=False))
def test_the_same_evidence_in_another_order_gives_the_same_cards(rule, uses, shuffler):
    shuffled = list(uses)
    shuffler.shuffle(shuffled)
    assert apply_uses(CARDS, uses, (), rule) == apply_uses(CARDS, shuffled, (), rule)


@RULES
@QUICK
@given(evidence)
def test_the_same_evidence_again_changes_nothing(rule, uses):
    first = apply_uses(CARDS, uses, (), rule)
    assert apply_uses(CARDS, [*uses, *uses], (), rule).cards == first.cards
    again = apply_uses(CARDS | first.cards, uses, {use_key(u) for u in first.uses}, rule)
    assert (again.cards, again.uses) == ({}, ())


@RULES
@QUICK
@given(evidence, st.integers(0, 120))
def test_two_boundaries_give_what_one_gives(rule, uses, cut):
    whole = apply_uses(CARDS, uses, (), rule)
    early = apply_uses(CARDS, [u for u in uses if u.step < cut], (), rule)
    late = apply_uses(CARDS | early.cards, [u for u in uses if u.step >= cut], {use_key(u) for u in early.uses}, rule)
    assert CARDS | early.cards | late.cards == CARDS | whole.cards


@QUICK
@given(evidence)
def test_the_shared_counters_do_not_depend_on_the_rule(uses):
    credits = [apply_uses(CARDS, uses, (), rule) for rule in CREDIT_RULES.values()]
    shown = [{k: [getattr(c, n) for n in SHARED] for k, c in credit.cards.items()} for credit in credits]
    assert shown[0] == shown[1] == shown[2]
    assert credits[0].counts == credits[1].counts == credits[2].counts
    for counted in credits[0].cards.values():
        assert (counted.credit_helpful, counted.credit_hurt) == (counted.helpful_count, counted.hurt_count)


@RULES
@QUICK
@given(evidence)
def test_a_credited_card_is_a_valid_card(rule, uses):
    for counted in apply_uses(CARDS, uses, (), rule).cards.values():
        assert SkillCard.model_validate(counted.model_dump()) == counted


def pooled_over(uses: list[CardUse]) -> SkillCard:
    return reduce(lambda c, u: credited(c, u, contrastive), uses, CARDS["card-anthem"])


@QUICK
@given(evidence, st.randoms(use_true_random=False))
def test_the_pooled_uplift_does_not_depend_on_the_order_of_problems(uses, shuffler):
    one = pooled_over(uses)
    shuffler.shuffle(uses)
    other = pooled_over(uses)
    assert one.uplift_n == other.uplift_n
    assert all(math.isclose(getattr(one, n), getattr(other, n), rel_tol=1e-9, abs_tol=1e-9) for n in SUMS)


@QUICK
@given(evidence)
def test_a_card_and_its_opposite_have_opposite_uplifts(uses):
    swapped = [CardUse(**{**u.__dict__, "rewards_with": u.rewards_without, "rewards_without": u.rewards_with}) for u in uses]
    one, other = pooled_over(uses), pooled_over(swapped)
    assert one.uplift_mean == pytest.approx(-other.uplift_mean, abs=1e-12)
    assert one.uplift_var == pytest.approx(other.uplift_var)
    assert (one.credit_helpful, one.credit_hurt) == pytest.approx((other.credit_hurt, other.credit_helpful))


@QUICK
@given(evidence)
def test_the_bound_lies_between_the_extremes_and_above_what_was_seen(uses):
    judged = pooled_over(uses)
    bounds = [upper_bound(judged, confidence) for confidence in (0.6, 0.9, 0.98)]
    assert -1 <= bounds[0] <= bounds[1] <= bounds[2] <= 1
    if judged.uplift_n:
        assert bounds[0] > judged.uplift_sum / judged.uplift_weight or bounds[0] == 1.0
    assert (harm_evidence(judged) >= -math.log(0.02)) == (bounds[2] < 0)
