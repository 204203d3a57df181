"""Means of numbers of which some may be missing. Pure.

Invariant: what is missing is in no mean, and a mean over nothing is missing too; it is not 0.
"""

from collections.abc import Sequence
from statistics import fmean


def mean_if_any(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are not None, None if there is none."""
    counted = [v for v in values if v is not None]
    return fmean(counted) if counted else None
