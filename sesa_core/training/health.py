"""Whether training is still healthy: each number that tells of a collapse has a bound, and an alarm if it is beyond it for too long.

Pure but for the streaks that it counts, which their owner keeps from segment to segment. Invariant: an alarm sounds once, when its
metric has been beyond its bound for `health.window` steps in a row, and again only after it was within. Edge case: a metric that a
step does not have (nothing was updated, no game counts) neither goes on with a streak nor ends it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sesa_core.config.models import HealthSettings


@dataclass(frozen=True)
class Rule:
    """`bound` names the setting. `below`: the alarm is about values under it."""

    name: str
    metrics: tuple[str, ...]
    bound: str
    below: bool
    means: str


RULES = (
    Rule(
        "valid_rate", ("proposer/valid_rate",), "least_valid_rate", True, "hardly a question is valid: the solver has little to learn from"
    ),
    Rule("zero_variance", ("solver/zero_variance_share",), "most_zero_variance", False, "nearly every group is solved by all or by none"),
    Rule("entropy", ("solver/entropy", "proposer/entropy"), "least_entropy", True, "the policy hardly tries anything else any more"),
    Rule("kl", ("solver/kl", "proposer/kl"), "most_kl", False, "the policy is far from where it started"),
    Rule("finished", ("solver/finished_rate",), "least_finished", True, "most games end without an answer"),
    Rule("repetition", ("solver/repetition", "proposer/repetition"), "most_repetition", False, "texts repeat themselves"),
    Rule("distinct_questions", ("proposer/distinct_questions",), "least_distinct_questions", True, "many questions are the same"),
    Rule("near_duplicates", ("proposer/near_duplicate_share",), "most_near_duplicates", False, "many questions were posed before"),
    Rule("dropped", ("proposer/dropped_share", "solver/dropped_share"), "most_dropped", False, "search or judge fail: samples are dropped"),
)


@dataclass(frozen=True)
class Alarm:
    """`value` is the metric's at `step`, `bound` what it may be."""

    step: int
    name: str
    metric: str
    value: float
    bound: float
    below: bool
    means: str

    def __str__(self) -> str:
        beyond = "below" if self.below else "above"
        return f"alarm {self.name} at step {self.step}: {self.metric} {self.value:.3g} is {beyond} {self.bound:g}: {self.means}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Health:
    """Looks at one step after the other."""

    def __init__(self, settings: HealthSettings, streaks: dict[str, int]) -> None:
        """`streaks`: of each metric, for how many steps in a row it has been beyond its bound; counted on in place."""
        self._settings, self._streaks = settings, streaks

    def look(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """The alarms that begin with this step."""
        alarms = []
        for rule in RULES:
            bound = getattr(self._settings, rule.bound)
            for metric in rule.metrics if bound is not None else ():
                if metric in metrics and self._sounds(metric, metrics[metric], bound, rule.below):
                    alarms.append(Alarm(step, rule.name, metric, metrics[metric], bound, rule.below, rule.means))
        return alarms

    def _sounds(self, metric: str, value: float, bound: float, below: bool) -> bool:
        beyond = value < bound if below else value > bound
        self._streaks[metric] = self._streaks.get(metric, 0) + 1 if beyond else 0
        return self._streaks[metric] == self._settings.window

    def stops(self, alarms: list[Alarm]) -> Alarm | None:
        """The first of them that is to stop the run."""
        return next((a for a in alarms if a.name in self._settings.stop_on), None)
