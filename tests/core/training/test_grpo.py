"""From rewards to rows, with numbers worked out by hand."""

import math

import pytest

from sesa_core.rewards.proposer import frontier_reward
from sesa_core.training.baselines import GroupBaseline
from sesa_core.training.grpo import ScoredRollout, build_rows, scores_of
from sesa_core.types import Ending, Role, Trajectory

SCALED, CENTRED = GroupBaseline(), GroupBaseline(normalise_by_std=False)


def rollout(reward: float, group: str = "g", sample: int = 0, mask: tuple[int, ...] = (1, 0, 1)) -> ScoredRollout:
    trajectory = Trajectory(
        role=Role.SOLVER,
        group_id=group,
        sample=sample,
        prompt="",
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5 + sample),
        response_mask=mask,
        log_probs=(-0.5, 0.0, -0.25),
        turns=(),
        ending=Ending.FINISHED,
    )
    return ScoredRollout(trajectory, group, reward)


def group(name: str, *rewards: float) -> list[ScoredRollout]:
    return [rollout(reward, name, sample) for sample, reward in enumerate(rewards)]


def test_advantages_are_centred_and_scaled_by_the_sample_deviation():
    # mean 1/4; squared deviations 9/16 + 3/16 = 3/4, over n - 1 = 3: std = 1/2; (1 - 1/4) / (1/2) = 1.5, (0 - 1/4) / (1/2) = -0.5
    rows, counts = build_rows(group("g", 1, 0, 0, 0), SCALED)
    assert [row.advantage for row in rows] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert (counts.groups, counts.live, counts.rows) == (1, 1, 4)


def test_without_the_deviation_advantages_are_only_centred():
    rows, _ = build_rows(group("g", 0.64, 0.96, 0.0, 0.0), CENTRED)
    assert [row.advantage for row in rows] == pytest.approx([0.24, 0.56, -0.4, -0.4], abs=1e-6)


def test_groups_are_centred_apart_even_when_their_rollouts_alternate():
    a, b = group("a", 1, 0), group("b", 0, 4)
    rows, _ = build_rows([a[0], b[0], a[1], b[1]], CENTRED)
    assert [(row.group_id, row.advantage) for row in rows] == [("a", 0.5), ("a", -0.5), ("b", -2.0), ("b", 2.0)]


def test_a_group_that_agrees_has_nothing_to_teach_and_leaves_no_row():
    rows, counts = build_rows(group("all right", 1, 1, 1) + group("mixed", 1, 0) + group("all wrong", 0, 0), SCALED)
    assert {row.group_id for row in rows} == {"mixed"}
    assert (counts.groups, counts.live, counts.zero_variance, counts.rows) == (3, 1, 2, 2)
    assert counts.as_metrics()["groups/zero_variance_share"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_drops_its_sample_only(bad):
    rows, counts = build_rows(group("g", 1, bad, 0), SCALED)
    # the survivors 1 and 0: mean 1/2, std sqrt(1/2): advantages +-0.5 / 0.70711 = +-0.70711
    assert [row.advantage for row in rows] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
    assert [row.response_ids[-1] for row in rows] == [5, 7]
    assert (counts.non_finite, counts.rows) == (1, 2)


def test_a_lone_survivor_teaches_nothing():
    rows, counts = build_rows(group("g", 1, math.nan) + group("single", 1), SCALED)
    assert rows == []
    assert (counts.groups, counts.too_small, counts.non_finite) == (2, 2, 1)


def test_a_rollout_without_a_sampled_token_is_dropped_before_the_mean():
    rows, counts = build_rows([*group("g", 1, 0), rollout(1.0, "g", 2, mask=(0, 0, 0))], CENTRED)
    assert [row.advantage for row in rows] == [0.5, -0.5]
    assert counts.silent == 1


def test_survivors_that_agree_after_a_drop_count_as_zero_variance():
    rows, counts = build_rows(group("g", 1, 1, math.nan), SCALED)
    assert (rows, counts.zero_variance, counts.too_small) == ([], 1, 0)


def test_a_row_carries_its_rollouts_tokens_as_they_were_sampled():
    (first, _), _ = build_rows(group("g", 1, 0), SCALED)
    assert (first.prompt_ids, first.response_ids, first.response_mask) == ((1, 2), (3, 4, 5), (1, 0, 1))
    assert first.old_log_probs == (-0.5, 0.0, -0.25)


def test_no_rollouts_are_no_rows():
    rows, counts = build_rows([], SCALED)
    assert (rows, counts.groups) == ([], 0) and "groups/zero_variance_share" not in counts.as_metrics()


def test_every_scored_rollout_has_its_reward_and_those_of_a_row_its_advantage():
    a, b, silent = group("a", 1, 0), group("b", 1, 1), rollout(1.0, "a", 2, mask=(0, 0, 0))
    scored = [a[0], b[0], silent, a[1], b[1]]
    rows, _ = build_rows(scored, CENTRED)
    assert scores_of(scored, rows, CENTRED) == {
        (Role.SOLVER, "a", 0): (1, 0.5),
        (Role.SOLVER, "a", 1): (0, -0.5),
        (Role.SOLVER, "a", 2): (1, None),
        (Role.SOLVER, "b", 0): (1, None),
        (Role.SOLVER, "b", 1): (1, None),
    }
    assert scores_of([], [], CENTRED) == {}


def test_rewards_that_differ_by_rounding_alone_teach_nothing():
    low, high = frontier_reward(1 / 5), frontier_reward(4 / 5)
    assert low != high and abs(low - high) < 1e-12  # 4 (1/5)(4/5) either way
    assert not SCALED.teaches([low, high])
    assert SCALED.teaches([low, frontier_reward(2 / 5)])
