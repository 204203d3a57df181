"""Rewards: pure functions of what was played. `REWARDS` names the proposer's, as `proposer_reward.kind` does.

A new one is a function in `proposer.py`, a line here and its variant in `config/proposer_rewards.py`.
"""

from collections.abc import Callable
from typing import Any

from sesa_core.config.proposer_rewards import ProposerRewardSettings
from sesa_core.rewards.proposer import frontier_reward, one_minus_pass_rate, pass_rate_band, valid_only
from sesa_core.rewards.solver import solver_reward

__all__ = [
    "REWARDS",
    "frontier_reward",
    "one_minus_pass_rate",
    "pass_rate_band",
    "proposer_reward",
    "solver_reward",
    "valid_only",
]

REWARDS: dict[str, Callable[[Any, float], float]] = {  # of the kind's own settings and a pass rate
    "frontier": lambda settings, pass_rate: frontier_reward(pass_rate, settings.low, settings.high, settings.extreme_penalty),
    "one_minus_pass_rate": lambda settings, pass_rate: one_minus_pass_rate(pass_rate),
    "pass_rate_band": lambda settings, pass_rate: pass_rate_band(pass_rate),
    "valid_only": lambda settings, pass_rate: valid_only(pass_rate),
}


def proposer_reward(settings: ProposerRewardSettings, pass_rate: float) -> float:
    """The reward of a valid question under the configured kind; `pass_rate` of its solver group, in [0, 1]."""
    return REWARDS[settings.kind](settings, pass_rate)
