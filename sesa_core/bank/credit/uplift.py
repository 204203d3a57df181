"""What a card changes in the mean reward of the rollouts that see it: one small randomised experiment per problem, pooled.

Each card is withheld from half of a group by a draw of its own, so a problem compares like with like, however hard it is and
whatever else was shown: the other cards add noise, no bias. A problem is one stratum of a stratified comparison (Mantel and
Haenszel; Peto): with n rollouts that saw the card, m that did not and s2 the variance of all n + m rewards, the difference d has
the weight w = nm / (n + m), and under "the card changes nothing" w d has mean 0 and variance w s2, by the draw alone. So a
problem that all or none solved says nothing, and no variance has to be guessed from four coins.

Invariant: everything is a sum over problems, so their order does not matter. Pure. Edge case: a card that helps at some
problems and hurts at others varies more than the draw explains; the uncertainty then grows with what was seen (`dispersion`).
"""

import math
from dataclasses import dataclass
from typing import Any

from sesa_core.cards.schema import SkillCard
from sesa_core.types import CardUse

PRIOR_SD = 0.25  # of a card's uplift before anything is known, in reward
COIN = 0.25  # variance of a 0/1 reward at a pass rate of one half: the largest there is
PRIOR_WEIGHT = COIN / PRIOR_SD**2  # weight of the prior in the mean: two problems of 4 rollouts against 4
PRIOR_PRECISION = COIN**2 / PRIOR_SD**2  # the same prior on the scale of log odds, on which `uplift_sum` drifts
PRIOR_PROBLEMS = 10.0  # problems without overdispersion that every card is taken to have had
_ASYMPTOTE = 10.0  # beyond it erfc(x) is exp(-x*x) / (x sqrt(pi)) to half a percent


@dataclass(frozen=True)
class Comparison:
    """One problem's word on a card. `difference` in mean reward, [-1, 1]; `weight` in rollouts (4 against 4: 2); `chance` is
    the variance of weight x difference if the card changed nothing."""

    difference: float
    weight: float
    chance: float


def compare(use: CardUse) -> Comparison | None:
    """The use as a comparison, None if one side is empty. Rewards count within [0, 1]."""
    saw, did_not = ([min(max(r, 0.0), 1.0) for r in side] for side in (use.rewards_with, use.rewards_without))
    if not saw or not did_not:
        return None
    n, m = len(saw), len(did_not)
    weight, mean = n * m / (n + m), math.fsum(saw + did_not) / (n + m)
    variance = math.fsum((r - mean) ** 2 for r in saw + did_not) / (n + m - 1)
    return Comparison(math.fsum(saw) / n - math.fsum(did_not) / m, weight, weight * variance)


def pooled(card: SkillCard, found: Comparison) -> dict[str, Any]:
    """The card's `uplift_*` fields after one more comparison: the sums, and mean and variance shrunk towards the prior."""
    step = found.weight * found.difference
    total, weight, chance = card.uplift_sum + step, card.uplift_weight + found.weight, card.uplift_chance + found.chance
    squares, count = card.uplift_squares + step * step, card.uplift_n + 1
    spread = dispersion(total, squares, chance, count) * (PRIOR_WEIGHT * COIN + chance)
    return {
        "uplift_sum": total,
        "uplift_weight": weight,
        "uplift_chance": chance,
        "uplift_squares": squares,
        "uplift_n": count,
        "uplift_mean": total / (PRIOR_WEIGHT + weight),
        "uplift_var": spread / (PRIOR_WEIGHT + weight) ** 2,
    }


def dispersion(total: float, squares: float, chance: float, count: int) -> float:
    """How much more a card's effect varies between problems than the draw explains, at least 1; shrunk towards 1.

    `total`, `squares`: sums of weight x difference and of its square over `count` problems.
    """
    if chance <= 0 or count < 2:
        return 1.0
    seen = (squares - total * total / count) * count / chance  # count - 1 on average if the draw explains everything
    return max(1.0, (PRIOR_PROBLEMS + seen) / (PRIOR_PROBLEMS + count - 1))


def harm_evidence(card: SkillCard, than: float = 0.0) -> float:
    """Natural logarithm of the evidence that the card's uplift lies below `than`, against that it does not.

    The one-sided normal mixture of Howard et al. (Time-uniform, nonparametric, nonasymptotic confidence sequences, 2021) over
    the stratified sum, as in ter Schure et al. (The anytime-valid logrank test, 2024): if the uplift is not below `than`, the
    evidence ever reaches 1 / a with a probability of at most a, however often one looks. That is exact for 0/1 rewards in equal
    halves and "the card changes nothing" (the draw is sub-Gaussian there); elsewhere as far as sums are normal: the tests measure it.
    """
    excess = dispersion(card.uplift_sum, card.uplift_squares, card.uplift_chance, card.uplift_n)
    drift, chance = (card.uplift_sum - than * card.uplift_weight) / excess, card.uplift_chance / excess
    precision = PRIOR_PRECISION + chance
    x = drift / math.sqrt(2 * precision)
    tail = math.log(math.erfc(x)) + x * x if x < _ASYMPTOTE else -math.log(x * math.sqrt(math.pi))
    return 0.5 * math.log(PRIOR_PRECISION / precision) + tail


def upper_bound(card: SkillCard, confidence: float) -> float:
    """The largest uplift in [-1, 1] that is still credible: it stays above the true one for ever with that confidence."""
    wanted = -math.log(1 - confidence)
    low, high = -1.0, 1.0
    if harm_evidence(card, high) < wanted:
        return high
    for _ in range(40):  # down to 1e-12
        middle = (low + high) / 2
        low, high = (low, middle) if harm_evidence(card, middle) >= wanted else (middle, high)
    return high


def recent_uplift(card: SkillCard) -> float:
    """The uplift of late, from the decayed sums (half-life `base.HALF_LIFE_STEPS`), shrunk like the whole one."""
    return card.recent_uplift_sum / (PRIOR_WEIGHT + card.recent_uplift_weight)
