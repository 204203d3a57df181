"""Who leaves, worked out by hand."""

import math

import pytest

from sesa_core.bank import eviction
from sesa_core.bank.credit.uplift import harm_evidence, upper_bound
from sesa_core.bank.eviction import EVICTION_RULES, tombstone
from sesa_core.bank.holding import Holding
from sesa_core.bank.plan import plan_boundary
from sesa_core.bank.state import BankState
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.load import load_config
from sesa_core.config.models import BankSettings
from sesa_core.errors import ConfigError
from sesa_core.rng import stream
from tests.bank_support import card, draft, embedder, failure, reply, segment_commit, use

PUBLISHED = BankSettings(credit="uniform", eviction="net_score", max_cards=3, min_uses_to_evict=3, protected_uses=3)
CREDIBLE = PUBLISHED.model_copy(update={"credit": "contrastive", "eviction": "credible_uplift", "eviction_confidence": 0.98})


UPLIFT = ("uplift_n", "uplift_weight", "uplift_sum", "uplift_chance", "uplift_squares", "uplift_mean")


def used(card_id: str, helpful: int, hurt: int, neutral: int = 0, **fields):
    return card("anthem", card_id=card_id, retrieved_count=helpful + hurt + neutral, helpful_count=helpful, hurt_count=hurt, **fields)


def measured(card_id: str, difference: float, problems: int, **fields):
    """A card that made this difference at every one of so many problems, 4 rollouts against 4, half of them solved."""
    sums = {"uplift_n": problems, "uplift_weight": 2.0 * problems, "uplift_sum": 2.0 * problems * difference}
    sums |= {"uplift_chance": problems * 4 / 7, "uplift_squares": problems * (2 * difference) ** 2}
    sums |= {"uplift_mean": sums["uplift_sum"] / (4 + 2 * problems)}
    return used(card_id, 0, 0, problems, **sums, **fields)


def harmful(cards, settings):
    return eviction.harmful(Holding.of(cards), settings)


def over_cap(cards, settings):
    return eviction.over_cap(Holding.of(cards), settings)


def ids(cards) -> list[str]:
    return [c.card_id for c in cards]


def test_a_negative_score_after_three_retrievals_leaves():
    cards = [
        used("two-uses", 0, 2),
        used("balanced", 2, 2),
        used("harmful", 1, 2),
        used("harmful-with-neutral-uses", 0, 1, 2),
        used("helpful", 3, 1),
        used("seed", 0, 9, origin=Origin.SEED),
        used("mined", 0, 3, origin=Origin.MINED),
    ]
    assert ids(harmful(cards, PUBLISHED)) == ["harmful", "harmful-with-neutral-uses", "mined"]


def test_weighted_credit_decides_the_score_where_credit_is_weighted():
    by_similarity = PUBLISHED.model_copy(update={"credit": "similarity"})
    outweighed = used("outweighed", 2, 1, credit_helpful=0.5, credit_hurt=0.75)
    cancelling = used("cancelling", 2, 1, credit_helpful=0.1 + 0.2, credit_hurt=0.3 + 1e-15)
    assert ids(harmful([outweighed, cancelling], by_similarity)) == ["outweighed"]
    assert harmful([outweighed, cancelling], PUBLISHED) == []


def test_only_a_credibly_negative_uplift_leaves():
    # per problem -.5 x 2 = -1 and chance 4 / 7. Six problems: sum -6, variance 24 / 7, evidence
    # sqrt(7 / 31) x exp(36 x 7 / 62) x erfc(-sqrt(252 / 62)) = 55.2 >= 1 / .02; five: 25.9
    six, five = measured("six", -0.5, 6), measured("five", -0.5, 5)
    assert math.exp(harm_evidence(six)) == pytest.approx(55.2, abs=0.1)
    assert math.exp(harm_evidence(five)) == pytest.approx(25.9, abs=0.1)
    assert ids(harmful([six, five, measured("helpful", 0.5, 40), used("losing", 0, 30)], CREDIBLE)) == ["six"]
    assert ids(harmful([six, five], CREDIBLE.model_copy(update={"eviction_confidence": 0.95}))) == ["five", "six"]


@pytest.mark.parametrize("problems", range(3, 12))
def test_a_card_leaves_exactly_when_its_bound_falls_below_zero(problems):
    judged = measured("c", -0.5, problems)
    assert bool(harmful([judged], CREDIBLE)) == (upper_bound(judged, 0.98) < 0)


def test_no_rule_evicts_before_the_third_use_nor_a_seed_nor_a_kept_origin():
    early = measured("early", -1.0, 9).model_copy(update={"retrieved_count": 2})
    seed, mined = (measured(o.value, -1.0, 20, origin=o) for o in (Origin.SEED, Origin.MINED))
    assert ids(harmful([early, seed, mined], CREDIBLE)) == ["mined"]
    assert harmful([seed, mined], CREDIBLE.model_copy(update={"keep_origins": ("mined",)})) == []


def test_the_cap_takes_the_lowest_scores_and_never_a_seed():
    cards = [used("a", 3, 0), used("b", 2, 2), used("c", 4, 0), used("d", 2, 1), used("seed", 0, 9, origin=Origin.SEED)]
    assert ids(over_cap(cards, PUBLISHED)) == ["b", "d"]


def test_the_cap_takes_the_lowest_uplift_where_uplift_decides():
    cards = [measured(n, d, 10) for n, d in (("a", 0.1), ("b", -0.1), ("c", 0.2), ("d", 0.3))]
    cards[1] = cards[1].model_copy(update={"helpful_count": 9})
    assert ids(over_cap(cards, CREDIBLE)) == ["b"]
    assert ids(over_cap(cards, PUBLISHED)) == ["a"]


def test_the_paper_keeps_its_mined_cards():
    paper = load_config("paper").bank.model_copy(update={"max_cards": 1})
    cards = [used("mined", 0, 9, origin=Origin.MINED), used("distilled", 9, 0)]
    assert (ids(harmful(cards, paper)), ids(over_cap(cards, paper))) == ([], ["distilled"])
    assert (paper.eviction, paper.min_uses_to_evict) == ("net_score", 3)


def test_the_cap_spares_what_has_not_been_tried_yet_as_long_as_it_can():
    cards = [used("fresh", 0, 2), used("tried", 5, 0), used("also-fresh", 0, 0), used("seed", 0, 0, origin=Origin.SEED)]
    assert ids(over_cap(cards, PUBLISHED)) == ["tried"]


def test_among_the_spared_the_newest_goes_first():
    cards = [used(n, 0, 0, created_boundary=b) for n, b in (("old", 1), ("older", 0), ("newest", 3), ("newer", 2))]
    assert ids(over_cap(cards, PUBLISHED)) == ["newest"]


def test_a_bank_within_the_cap_loses_nothing():
    assert over_cap([used(n, 0, 0) for n in "abc"], PUBLISHED) == []


def test_a_tombstone_holds_the_card_and_blocks_until_lifted_or_expired_unless_it_is_of_the_cap():
    buried = used("a", 0, 3, state=CardState.SUSPENDED)
    stone = tombstone(buried, "net_score", 4)
    assert (stone.tombstone_id, stone.card, stone.blocks(5)) == ("a@4", buried, True)
    assert not tombstone(buried, "cap", 4).blocks(5)
    lifted, expiring = (type(stone)(**{**stone.__dict__, n: 6}) for n in ("lifted_boundary", "expires_boundary"))
    assert (lifted.blocks(7), expiring.blocks(5), expiring.blocks(6)) == (False, True, False)
    assert type(stone).of(stone.row([0.0])) == stone


def test_under_the_default_rules_a_harmful_card_leaves_at_the_boundary_and_its_lesson_does_not_come_back():
    uses = [use("card-climate", f"p{i}", (0.0, 0.0, 0.0, 1.0), without=(1.0, 1.0, 1.0, 0.0), step=i) for i in range(6)]
    uses += [use("card-anthem", f"p{i}", (0.0, 0.0, 0.0, 0.0), without=(0.0, 0.0, 0.0, 0.0), step=i) for i in range(6)]
    start = (card("anthem"), card("climate"))
    vectors = embedder().embed_cards([embedding_text(c) for c in start])
    again = segment_commit(bank=BankSettings(), uses=uses, failures=[failure("f", "climate")], replies=[reply("f", draft("climate"))])
    plan = plan_boundary(BankState(None, "r", Holding.of(start, vectors)), again, embedder=embedder())
    assert plan.removals == ("card-climate",)
    assert [(e["reason"], e["uplift_n"], e["uplift_mean"], e["net"]) for e in plan.report.evicted] == [("credible_uplift", 6, -6 / 16, 6)]
    assert [(r["rule"], r["other"]) for r in plan.report.refused] == [("tombstoned", "card-climate@0")]
    assert [(row["card_id"], row["hurt_count"], row["uplift_n"]) for row in plan.upserts] == [("card-anthem", 6, 6)]


@pytest.mark.parametrize("settings", [PUBLISHED, CREDIBLE, PUBLISHED.model_copy(update={"credit": "similarity"})])
def test_a_card_that_is_not_looked_at_would_not_have_been_found_harmful(settings):
    rng = stream(0, "suspects")
    cards = []
    for i in range(400):
        helpful, hurt, neutral = (int(n) for n in rng.integers(0, 6, size=3))
        credit = {"credit_helpful": float(rng.random()), "credit_hurt": float(rng.random())}
        uplift = {n: getattr(measured("x", float(rng.uniform(-1, 1)), int(rng.integers(0, 30))), n) for n in UPLIFT}
        cards.append(used(f"card-{i:03d}", helpful, hurt, neutral, **credit, **uplift))
    tried = [c for c in cards if c.retrieved_count >= 3]
    expected = [c.card_id for c in tried if EVICTION_RULES[settings.eviction](c, settings)]
    assert ids(harmful(cards, settings)) == expected and 20 < len(expected) < 380


def test_every_rule_of_the_settings_is_there():
    assert list(EVICTION_RULES) == ["net_score", "credible_uplift"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["bank.withhold=none"], "needs withhold half"),
        (["bank.credit=uniform"], "needs credit contrastive"),
        (["bank.credit=similarity", "bank.withhold=none"], "needs credit contrastive"),
        (["bank.eviction=net_score", "bank.withhold=none"], "needs withhold half"),
        (["bank.eviction_confidence=1"], "less than 1"),
        (["bank.keep_origins=[distilled]"], "'seed' or 'mined'"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(overrides, says):
    with pytest.raises(ConfigError, match=says):
        load_config(overrides=overrides)


@pytest.mark.parametrize("credit", ["uniform", "similarity"])
def test_credit_without_a_comparison_goes_with_the_net_score(credit):
    bank = load_config(overrides=[f"bank.credit={credit}", "bank.eviction=net_score", "bank.withhold=none"]).bank
    assert (bank.credit, bank.eviction) == (credit, "net_score")
