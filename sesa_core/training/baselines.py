"""What a reward is compared with: the other rewards of its group (GRPO), or the mean of earlier steps (REINFORCE). Pure.

Invariant: a baseline says which groups have something to teach before it is asked for their advantages, so that a step in which
all earned the same moves nothing. Edge case: a running mean starts at the mean of the first step that earned anything, which that
step's own rewards are compared with; a step that earned nothing leaves it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Protocol

ROUNDING = 1e-9  # a difference below this is what is left of calculating in another order


class Baseline(Protocol):
    """`least`: a group of fewer rollouts has nothing to be compared with."""

    least: ClassVar[int]

    def teaches(self, rewards: Sequence[float]) -> bool:
        """Whether a group of these rewards can move the policy."""
        ...

    def advantages(self, rewards: Sequence[float], groups: Sequence[str]) -> list[float]:
        """One for each reward; `groups` names the group of each."""
        ...


@dataclass(frozen=True)
class GroupBaseline:
    """(r - mean) / (std + 1e-6) inside each group, with the sample standard deviation, as verl's `core_algos` computes it.

    Edge case: verl would hand a group's lone survivor its raw reward as advantage, so a group needs two.
    """

    normalise_by_std: bool = True
    least: ClassVar[int] = 2

    def teaches(self, rewards: Sequence[float]) -> bool:
        return any(abs(reward - rewards[0]) > ROUNDING for reward in rewards)

    def advantages(self, rewards: Sequence[float], groups: Sequence[str]) -> list[float]:
        if not rewards:
            return []
        from sesa_core.training.verl.advantages import group_advantages  # verl takes seconds to import; the rules above need none of it

        return group_advantages(rewards, groups, self.normalise_by_std)


@dataclass(frozen=True)
class RunningBaseline:
    """r - mean, divided by nothing; a group may hold one rollout."""

    mean: float
    least: ClassVar[int] = 1

    def teaches(self, rewards: Sequence[float]) -> bool:
        return any(abs(reward - self.mean) > ROUNDING for reward in rewards)

    def advantages(self, rewards: Sequence[float], groups: Sequence[str]) -> list[float]:
        return [reward - self.mean for reward in rewards]


def started_mean(mean: float | None, rewards: Sequence[float]) -> float | None:
    """What a step's rewards are compared with: the `mean` of the steps before, in the first step its own; None if there is neither."""
    return fmean(rewards) if mean is None and rewards else mean


def followed_mean(mean: float, rewards: Sequence[float], rate: float) -> float:
    """The mean for the next step: `rate` of the way from `mean` to the mean of this step's rewards."""
    return mean + rate * (fmean(rewards) - mean) if rewards else mean
