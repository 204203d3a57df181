"""From scored rollouts to the rows of a GRPO update, through verl's own `core_algos`.

Invariant: only live rows are returned. A non-finite reward drops its rollout; a group with fewer than two survivors is
dropped (verl would take a lone survivor's raw reward for an advantage); a group whose rewards are all equal contributes
nothing, its KL term included. Each is counted.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from sesa_core.policy.base import TrainingRow
from sesa_core.types import Trajectory


@dataclass(frozen=True)
class ScoredRollout:
    """A rollout that counts, with its reward and the group in which it is compared."""

    trajectory: Trajectory
    group_id: str
    reward: float


@dataclass(frozen=True)
class GroupCounts:
    """What became of the groups of one update."""

    live_groups: int = 0
    zero_variance_groups: int = 0
    small_groups: int = 0
    non_finite_rewards: int = 0
    rows: int = 0

    def as_metrics(self) -> dict[str, float]:
        return {f"grpo/{name}": float(value) for name, value in asdict(self).items()}


def build_rows(scored: Sequence[ScoredRollout], normalise_by_std: bool = True) -> tuple[list[TrainingRow], GroupCounts]:
    """Rows of all live groups, in the order given, each with its advantage (r - mean) / (std + 1e-6)."""
    finite = [s for s in scored if math.isfinite(s.reward) and any(s.trajectory.response_mask)]
    groups: dict[str, list[float]] = {}
    for rollout in finite:
        groups.setdefault(rollout.group_id, []).append(rollout.reward)
    small = {g for g, rewards in groups.items() if len(rewards) < 2}
    flat = {g for g, rewards in groups.items() if g not in small and len(set(rewards)) == 1}
    live = [s for s in finite if s.group_id not in small | flat]
    counts = GroupCounts(
        live_groups=len(groups) - len(small) - len(flat),
        zero_variance_groups=len(flat),
        small_groups=len(small),
        non_finite_rewards=sum(not math.isfinite(s.reward) for s in scored),
        rows=len(live),
    )
    advantages = outcome_advantages([s.reward for s in live], [s.group_id for s in live], normalise_by_std)
    return [_row(s, a) for s, a in zip(live, advantages, strict=True)], counts


def outcome_advantages(rewards: Sequence[float], group_ids: Sequence[str], normalise_by_std: bool = True) -> list[float]:
    """Advantages (N,) of N outcome rewards, centred within their groups by verl's GRPO estimator."""
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage  # slow import

    if not rewards:
        return []
    column = torch.tensor(rewards, dtype=torch.float32)[:, None]  # (N, 1): an outcome is a response of one token
    advantages, _ = compute_grpo_outcome_advantage(
        column, torch.ones_like(column), np.array(group_ids, dtype=object), norm_adv_by_std_in_grpo=normalise_by_std
    )
    return advantages[:, 0].tolist()


def _row(scored: ScoredRollout, advantage: float) -> TrainingRow:
    t = scored.trajectory
    return TrainingRow(t.prompt_ids, t.response_ids, t.response_mask, t.log_probs, advantage, scored.group_id)
