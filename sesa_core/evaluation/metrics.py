"""Accuracy with its uncertainty. Pure."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

Z95 = 1.959964


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
