"""Rewards: pure functions of what was played. `REWARDS` names the proposer's shapings, as `proposer_reward.kind` does.

A new shaping is a function in `proposer.py`, a line here and its name in `config/models.py`.
"""

from collections.abc import Callable

from sesa_core.config.models import ProposerRewardSettings
from sesa_core.rewards.proposer import frontier_reward
from sesa_core.rewards.solver import solver_reward

__all__ = ["REWARDS", "frontier_reward", "proposer_reward", "solver_reward"]

REWARDS: dict[str, Callable[[ProposerRewardSettings, float], float]] = {
    "frontier": lambda settings, pass_rate: frontier_reward(pass_rate, settings.low, settings.high, settings.extreme_penalty),
}


def proposer_reward(settings: ProposerRewardSettings, pass_rate: float) -> float:
    """The reward of a valid question under the configured shaping; `pass_rate` of its solver group, in [0, 1]."""
    return REWARDS[settings.kind](settings, pass_rate)
