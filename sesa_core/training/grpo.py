"""Rewards of rollouts -> rows with advantages: what is left of a step for the optimizer.

Pure. A row's advantage is its reward, compared with what `baselines.py` says. Invariant: only rows that can move the policy come
out; everything else is counted, and appears in no denominator. Edge case: a group with fewer survivors than its baseline needs is
dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from sesa_core.policy.base import TrainingRow
from sesa_core.training.baselines import Baseline
from sesa_core.types import Role, Trajectory


@dataclass(frozen=True)
class ScoredRollout:
    """A rollout and its reward. Rollouts of equal `group_id` (a problem's, or a target's) are compared with one another."""

    trajectory: Trajectory
    group_id: str
    reward: float

    @property
    def survives(self) -> bool:
        """Its reward is a number, and the policy wrote some of it."""
        return math.isfinite(self.reward) and any(self.trajectory.response_mask)


class Score(NamedTuple):
    """What a rollout earned. `advantage` is None for one in no update: of a frozen role, of a group with nothing to learn, or left out."""

    reward: float
    advantage: float | None


Scores = dict[tuple[Role, str, int], Score]  # a rollout's role, group and sample, unique within a step


@dataclass(frozen=True)
class GroupCounts:
    """What became of one update's rollouts. `groups` = `live` + `too_small` + `zero_variance`."""

    groups: int = 0
    live: int = 0
    too_small: int = 0  # groups with fewer survivors than can be compared
    zero_variance: int = 0  # groups whose survivors all earned what they are compared with: nothing to learn, the KL term included
    rows: int = 0  # rollouts that the optimizer sees
    non_finite: int = 0  # rollouts dropped because their reward is nan or infinite
    silent: int = 0  # rollouts dropped because the policy wrote no token of them

    def as_metrics(self) -> dict[str, float]:
        """The counts under `groups/...`, with the share of zero-variance groups if there are any groups."""
        metrics = {f"groups/{name}": float(value) for name, value in asdict(self).items()}
        return metrics | ({"groups/zero_variance_share": self.zero_variance / self.groups} if self.groups else {})


def build_rows(scored: Sequence[ScoredRollout], baseline: Baseline) -> tuple[list[TrainingRow], GroupCounts]:
    """Rows of the live groups, groups in order of their first rollout, and what was dropped. No rows: no update is due."""
    groups = _survivors(scored)
    big_enough = [group for group in groups if len(group) >= baseline.least]
    live = _live(groups, baseline)
    flat = [rollout for group in live for rollout in group]
    advantages = baseline.advantages([r.reward for r in flat], [r.group_id for r in flat])
    rows = [_row(rollout, advantage) for rollout, advantage in zip(flat, advantages, strict=True)]
    finite = [rollout for rollout in scored if math.isfinite(rollout.reward)]
    counts = GroupCounts(
        groups=len(groups),
        live=len(live),
        too_small=len(groups) - len(big_enough),
        zero_variance=len(big_enough) - len(live),
        rows=len(rows),
        non_finite=len(scored) - len(finite),
        silent=sum(not rollout.survives for rollout in finite),
    )
    return rows, counts


def surviving_rewards(scored: Sequence[ScoredRollout]) -> list[float]:
    """Rewards that may be compared, or enter a mean."""
    return [rollout.reward for rollout in scored if rollout.survives]


def _survivors(scored: Sequence[ScoredRollout]) -> list[list[ScoredRollout]]:
    """Every group, also one that nobody of survives, in order of its first rollout."""
    groups: dict[str, list[ScoredRollout]] = {rollout.group_id: [] for rollout in scored}
    for rollout in scored:
        if rollout.survives:
            groups[rollout.group_id].append(rollout)
    return list(groups.values())


def _live(groups: Sequence[list[ScoredRollout]], baseline: Baseline) -> list[list[ScoredRollout]]:
    return [group for group in groups if len(group) >= baseline.least and baseline.teaches([rollout.reward for rollout in group])]


def scores_of(scored: Sequence[ScoredRollout], rows: Sequence[TrainingRow], baseline: Baseline) -> Scores:
    """What every scored rollout earned; `rows` are those that `build_rows` made of them with this baseline."""
    flat = [_key(rollout.trajectory) for group in _live(_survivors(scored), baseline) for rollout in group]
    advantages = {key: row.advantage for key, row in zip(flat, rows, strict=True)}
    return {(key := _key(r.trajectory)): Score(r.reward, advantages.get(key)) for r in scored}


def _key(trajectory: Trajectory) -> tuple[Role, str, int]:
    return trajectory.role, trajectory.group_id, trajectory.sample


def _row(rollout: ScoredRollout, advantage: float) -> TrainingRow:
    trajectory = rollout.trajectory
    return TrainingRow(
        prompt_ids=trajectory.prompt_ids,
        response_ids=trajectory.response_ids,
        response_mask=trajectory.response_mask,
        old_log_probs=trajectory.log_probs,
        advantage=advantage,
        group_id=rollout.group_id,
    )
