"""Accuracy with its uncertainty. Pure."""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev

from sesa_core.means import mean_if_any

Z95 = 1.959964
T95 = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)  # Student's, by degrees of freedom


def mean(values: Sequence[float | None]) -> float:
    """As `mean_if_any`, 0 if there is none."""
    return mean_if_any(values) or 0.0


def wilson_interval(successes: float, count: int) -> tuple[float, float]:
    """95 % interval of a share of `count` independent outcomes (Wilson's score interval)."""
    if count == 0:
        return 0.0, 1.0
    p, z2 = successes / count, Z95**2
    centre = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * sqrt(p * (1 - p) / count + z2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def paired_difference(left: Sequence[float | None], right: Sequence[float | None]) -> tuple[float, float, float]:
    """Mean of left - right over pairs, with its 95 % interval (normal approximation). A pair with a dropped half is left out."""
    differences = [a - b for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if not differences:
        return 0.0, 0.0, 0.0
    mean = fmean(differences)
    half = Z95 * stdev(differences) / sqrt(len(differences)) if len(differences) > 1 else 0.0
    return mean, mean - half, mean + half


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of at least one value with its 95 % interval by Student's t; of one value alone nothing is known, so it is infinitely wide."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, -inf, inf
    half = student_t95(len(values) - 1) * stdev(values) / sqrt(len(values))
    return mean, mean - half, mean + half


def student_t95(freedom: int) -> float:
    """The .975 quantile of Student's t with this many degrees of freedom: a table, then the expansion of Cornish and Fisher."""
    if freedom <= len(T95):
        return T95[freedom - 1]
    z = Z95
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
