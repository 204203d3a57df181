"""Counters, credits and bounds worked out by hand."""

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from sesa_core.bank.credit import CREDIT_RULES, HALF_LIFE_STEPS, Outcome, apply_uses, credited, outcome, use_key
from sesa_core.bank.credit.contrastive import contrastive
from sesa_core.bank.credit.similarity import similarity
from sesa_core.bank.credit.uniform import uniform
from sesa_core.bank.credit.uplift import compare, dispersion, harm_evidence, recent_uplift, upper_bound
from sesa_core.config.load import load_config
from sesa_core.rng import stream
from tests.bank_support import card, use

ANTHEM = card("anthem")
FOUR_AGAINST_FOUR = use("card-anthem", "p1", (0.0, 0.0, 0.0, 1.0), without=(1.0, 1.0, 0.0, 1.0), step=10)
TWO_AGAINST_THREE = use("card-anthem", "p2", (1.0, 1.0), without=(0.0, 0.0, 0.0), step=10)
RULES = pytest.mark.parametrize("rule", CREDIT_RULES.values(), ids=CREDIT_RULES)


def after(*uses, rule=contrastive):
    return reduce(lambda c, u: credited(c, u, rule), uses, ANTHEM)


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


@RULES
def test_a_segment_adds_up_as_published_whatever_the_rule(rule):
    uses = [
        use("card-anthem", "p1", (0.0, 1.0), step=2, without=(1.0, 1.0)),
        use("card-anthem", "p2", (0.0, 0.0), step=4),
        use("card-anthem", "p3", (0.0,), step=4, substantive=False),
        use("card-anthem", "p4", (0.0,), step=6, without=(1.0,)),
    ]
    credit = apply_uses({"card-anthem": ANTHEM}, uses, (), rule)
    now = credit.cards["card-anthem"]
    assert (now.retrieved_count, now.helpful_count, now.hurt_count, now.net) == (4, 1, 2, -1)
    assert (now.last_retrieved_step, now.last_helped_step, now.policy_version) == (6, 2, 3)
    assert credit.counts == {"applied": 4, "repeated": 0, "unknown_card": 0, "helpful": 1, "hurt": 2, "neutral": 1}


def test_uniform_credit_is_the_count():
    now = after(*(use("card-anthem", f"p{i}", (reward,)) for i, reward in enumerate((1.0, 0.0, 0.0))), rule=uniform)
    assert (now.credit_helpful, now.credit_hurt) == (1.0, 2.0)
    assert now.uplift_n == 0


def test_similarity_credit_weighs_by_the_similarity_at_which_the_card_was_shown():
    shown_at = [(1.0, 0.5), (0.0, 0.25), (0.0, 0.125), (0.0, -0.5), (1.0, 1.5)]
    uses = [use("card-anthem", f"p{i}", (reward,), similarity=near) for i, (reward, near) in enumerate(shown_at)]
    now = after(*uses, rule=similarity)
    assert (now.credit_helpful, now.credit_hurt) == (1.5, 0.375)


def test_contrastive_credit_is_the_difference_within_the_group():
    now = after(FOUR_AGAINST_FOUR, TWO_AGAINST_THREE)
    assert (now.credit_helpful, now.credit_hurt) == (1.0, 0.5)


def test_one_problem_is_one_small_experiment():
    found = compare(FOUR_AGAINST_FOUR)
    assert (found.difference, found.weight) == (-0.5, 2.0)
    assert found.chance == pytest.approx(4 / 7)  # hypergeometric: 4 drawn from 8 of which 4 succeeded
    now = after(FOUR_AGAINST_FOUR)
    assert (now.uplift_n, now.uplift_sum, now.uplift_weight, now.uplift_squares) == (1, -1.0, 2.0, 1.0)
    assert now.uplift_mean == pytest.approx(-1 / 6)  # the prior weighs 4
    assert now.uplift_var == pytest.approx((4 / 4 + 4 / 7) / 36)


def test_problems_pool_by_weight_and_spread_more_if_they_disagree():
    found = compare(TWO_AGAINST_THREE)
    assert (found.difference, found.weight) == (1.0, pytest.approx(6 / 5))
    assert found.chance == pytest.approx(1.2 * 0.3)  # 2 of 5 succeeded: variance 5 x .24 / 4
    now = after(FOUR_AGAINST_FOUR, TWO_AGAINST_THREE)
    assert now.uplift_mean == pytest.approx(0.2 / 7.2)
    chance = 4 / 7 + 0.36
    seen = (1 + 1.44 - 0.2**2 / 2) * 2 / chance
    assert seen == pytest.approx(5.1963, abs=1e-4)
    assert now.uplift_var == pytest.approx((10 + seen) / 11 * (1 + chance) / 7.2**2)


def test_a_problem_that_all_or_none_solved_says_that_nothing_changed():
    for reward in (0.0, 1.0):
        now = after(use("card-anthem", "p1", (reward,) * 4, without=(reward,) * 4))
        assert (now.uplift_sum, now.uplift_weight, now.uplift_chance, now.uplift_n) == (0.0, 2.0, 0.0, 1)
        assert harm_evidence(now) == 0.0
        assert now.uplift_var == pytest.approx(1 / 36)


@pytest.mark.parametrize(("saw", "did_not"), [((1.0,), ()), ((), (1.0,)), ((), ())])
def test_one_side_alone_compares_nothing(saw, did_not):
    one_sided = use("card-anthem", "p1", saw, without=did_not)
    assert compare(one_sided) is None
    now = after(one_sided)
    assert (now.retrieved_count, now.uplift_n, now.credit_helpful, now.credit_hurt) == (1, 0, 0.0, 0.0)


def test_rewards_count_within_zero_and_one():
    assert compare(use("c", "p", (2.0,), without=(-3.0,))) == compare(use("c", "p", (1.0,), without=(0.0,)))


@RULES
def test_a_problem_counts_once_per_card_for_ever(rule):
    uses = [use("card-anthem", "p1", (1.0,), step=2), use("card-anthem", "p1", (0.0,), step=5)]
    credit = apply_uses({"card-anthem": ANTHEM}, uses, (), rule)
    assert (credit.cards["card-anthem"].retrieved_count, credit.counts["repeated"]) == (1, 1)
    again = apply_uses(credit.cards, uses, {use_key(u) for u in credit.uses}, rule)
    assert (again.cards, again.uses, again.counts["repeated"]) == ({}, (), 2)


def test_a_card_that_has_left_earns_nothing():
    credit = apply_uses({}, [use("gone", "p", (1.0,))], (), uniform)
    assert (credit.cards, credit.uses, credit.counts["unknown_card"]) == ({}, (), 1)


def test_recent_counters_fade_by_half_in_a_half_life():
    once = credited(ANTHEM, use("card-anthem", "p1", (1.0,), step=10), uniform)
    assert (once.recent_retrieved, once.recent_helpful, once.recent_hurt) == (1.0, 1.0, 0.0)
    later = credited(once, use("card-anthem", "p2", (0.0,), step=10 + int(HALF_LIFE_STEPS)), uniform)
    assert (later.recent_retrieved, later.recent_helpful, later.recent_hurt) == pytest.approx((1.5, 0.5, 1.0))


def test_a_card_that_helped_and_then_stopped_shows_it():
    helped = [use("card-anthem", f"p{i}", (1.0,) * 4, without=(0.0,) * 4, step=i) for i in range(20)]
    stopped = [use("card-anthem", f"q{i}", (0.0,) * 4, without=(0.0,) * 4, step=200 + i) for i in range(20)]
    assert recent_uplift(after(*helped)) == pytest.approx(0.89, abs=0.01)
    now = after(*helped, *stopped)
    assert now.uplift_mean == pytest.approx(40 / 84)
    assert recent_uplift(now) < 0.1


def test_the_decayed_uplift_ages_at_a_use_that_compares_nothing():
    now = after(TWO_AGAINST_THREE, use("card-anthem", "p3", (1.0,), step=10 + int(HALF_LIFE_STEPS)))
    assert (now.recent_uplift_sum, now.recent_uplift_weight) == pytest.approx((0.6, 0.6))


def measured(total: float, chance: float, count: int = 4):
    """A card whose problems agree as well as the draw lets them."""
    squares = total**2 / count + chance * (count - 1) / count
    return card("anthem", uplift_sum=total, uplift_weight=8.0, uplift_chance=chance, uplift_squares=squares, uplift_n=count)


def test_without_a_comparison_there_is_no_evidence_and_no_bound():
    assert harm_evidence(ANTHEM) == 0.0
    assert upper_bound(ANTHEM, 0.98) == 1.0


def test_evidence_of_harm_by_hand():
    # sum -6, variance 4, prior precision 1: sqrt(1 / 5) x exp(36 / 10) x erfc(-6 / sqrt(10))
    assert harm_evidence(measured(-6.0, 4.0)) == pytest.approx(0.5 * math.log(0.2) + 3.6 + math.log(1.99271), abs=1e-5)
    # the other way round the same deviation speaks for the card
    assert harm_evidence(measured(6.0, 4.0)) == pytest.approx(0.5 * math.log(0.2) + 3.6 + math.log(0.00729), abs=1e-2)


@pytest.mark.parametrize(("total", "chance"), [(-6.0, 4.0), (-1.0, 0.5), (0.0, 3.0), (2.5, 6.0)])
def test_evidence_of_harm_is_the_mixture_over_all_sizes_of_harm(total, chance):
    harm = np.linspace(0, 12, 200_001)  # log odds; the prior is the half of a standard normal
    ratio = np.exp(-harm * total - harm**2 * chance / 2) * 2 * np.exp(-(harm**2) / 2) / math.sqrt(2 * math.pi)
    assert harm_evidence(measured(total, chance)) == pytest.approx(math.log(np.trapezoid(ratio, harm)), abs=1e-6)


def test_evidence_of_harm_stays_finite_for_a_card_that_always_helps():
    evidence = [harm_evidence(measured(float(total), 0.5)) for total in (16, 17, 18, 19, 60, 6000)]
    assert all(a > b for a, b in zip(evidence, evidence[1:], strict=False)) and math.isfinite(evidence[-1])


def test_the_bound_is_where_the_evidence_is_just_enough():
    harmful = measured(-6.0, 4.0)
    bound = upper_bound(harmful, 0.9)
    assert harm_evidence(harmful, bound) == pytest.approx(-math.log(0.1))
    assert -0.75 < bound < 0  # below 0 and above the plain mean, -6 / 8
    assert bound < upper_bound(harmful, 0.98)


def test_a_card_whose_effect_changes_from_problem_to_problem_is_judged_with_more_doubt():
    assert dispersion(total=-4.0, squares=8.0, chance=4.0, count=8) == pytest.approx((10 + 12) / 17)  # (8 - 16 / 8) x 8 / 4 = 12 > 7
    assert dispersion(total=-4.0, squares=5.0, chance=4.0, count=8) == 1.0  # (5 - 2) x 2 = 6 < 7
    assert dispersion(total=1.0, squares=1.0, chance=0.0, count=1) == 1.0
    steady = measured(-6.0, 4.0, count=12)
    wavering = steady.model_copy(update={"uplift_squares": steady.uplift_squares * 4})
    assert harm_evidence(wavering) < harm_evidence(steady)


@pytest.mark.parametrize("solved", range(9))
def test_in_equal_halves_a_card_that_changes_nothing_gains_no_evidence_on_average(solved):
    """Over all 70 draws of who sees the card; exact, so the bound needs no large numbers."""
    rewards = [1.0] * solved + [0.0] * (8 - solved)
    draws = [set(saw) for saw in combinations(range(8), 4)]
    found = [compare(use("c", "p", [rewards[i] for i in d], without=[rewards[i] for i in range(8) if i not in d])) for d in draws]
    assert {round(f.chance, 9) for f in found} == {round(solved * (8 - solved) / 28, 9)}
    for harm in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        gained = [math.exp(-harm * f.weight * f.difference - harm**2 * f.chance / 2) for f in found]
        assert math.fsum(gained) / 70 <= 1 + 1e-12


def ever_crossed(group: int, change, *, wanted: float, than: float = 0.0, cards: int = 250, problems: int = 50) -> float:
    """Share of simulated cards that ever show that much evidence; `change` gives the effect at a problem."""
    rng = stream(5, "coverage", group)
    crossed = 0
    for _ in range(cards):
        judged = ANTHEM
        for i in range(problems):
            half = group // 2 + int(group % 2 and rng.random() < 0.5)
            base, effect = rng.uniform(0.3, 0.7), change(rng)
            saw = (rng.random(group - half) < base + effect).astype(float)
            did_not = (rng.random(half) < base).astype(float)
            judged = credited(judged, use("card-anthem", str(i), saw.tolist(), without=did_not.tolist()), contrastive)
            if harm_evidence(judged, than) >= wanted:
                crossed += 1
                break
    return crossed / cards


@pytest.mark.parametrize("group", [8, 5])
def test_a_harmless_card_is_hardly_ever_taken_for_harmful_however_often_one_looks(group):
    assert 0.005 < ever_crossed(group, lambda rng: 0.0, wanted=-math.log(0.1)) <= 0.1


def test_the_bound_holds_for_a_card_that_does_harm():
    assert ever_crossed(8, lambda rng: -0.2, wanted=-math.log(0.1), than=-0.2) <= 0.1


def test_the_bound_nearly_holds_for_a_card_that_helps_and_hurts_by_turns():
    assert ever_crossed(8, lambda rng: rng.choice((-0.3, 0.3)), wanted=-math.log(0.1)) <= 0.13


def test_the_paper_preset_credits_as_published_and_the_default_measures():
    paper, ours = load_config("paper").bank, load_config().bank
    assert (paper.credit, paper.withhold) == ("uniform", "none")
    assert (ours.credit, ours.withhold) == ("contrastive", "half")
