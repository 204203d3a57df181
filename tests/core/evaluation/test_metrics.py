import pytest

from sesa_core.evaluation.metrics import paired_difference, wilson_interval


def test_wilson_interval_by_hand():
    # p = 8/10, z = 1.96: centre = (0.8 + 0.19207) / 1.38415, half = 1.96 / 1.38415 * sqrt(0.016 + 0.009604)
    low, high = wilson_interval(8, 10)
    assert (low, high) == (pytest.approx(0.4901, abs=1e-3), pytest.approx(0.9433, abs=1e-3))
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 5)[0] == pytest.approx(0.0)


def test_paired_difference_by_hand():
    # differences 1, 0, 0, 1: mean 0.5, stdev 0.57735, half width 1.95996 * 0.57735 / 2
    mean, low, high = paired_difference([1, 1, 0, 1], [0, 1, 0, 0])
    assert (mean, low, high) == (0.5, pytest.approx(-0.0658, abs=1e-3), pytest.approx(1.0658, abs=1e-3))
    assert paired_difference([], []) == (0.0, 0.0, 0.0)


def test_a_pair_of_which_one_half_was_dropped_is_left_out():
    assert paired_difference([1, None, 1, 0, 1], [0, 1, 1, None, 0]) == paired_difference([1, 1, 1], [0, 1, 0])
