"""Which targets the proposer gets. `uniform` draws them evenly; `frontier` keeps asking where the solver is undecided.

A bucket is (relation, hops). Its pass rate is an exponential average of the solver's on questions for such targets; a bucket
is drawn in proportion to `LEAST` + 4p(1 - p), a bucket that was never played as if p were one half.
"""

from collections.abc import Sequence

import numpy as np

from sesa_core.types import Target

DECAY = 0.7  # weight of the past in the exponential average
LEAST = 0.1  # what a decided bucket still weighs: a card or an update may have made it undecided again


class TargetSampler:
    def __init__(self, targets: Sequence[Target], kind: str) -> None:
        """`targets`: all that may be asked for; `kind`: "uniform" or "frontier"."""
        if not targets:
            raise ValueError("no targets to draw from")
        self.kind = kind
        self._buckets: dict[str, list[Target]] = {}
        for target in targets:
            self._buckets.setdefault(self.bucket(target), []).append(target)
        self._pass_rates: dict[str, float] = {}

    @staticmethod
    def bucket(target: Target) -> str:
        return f"{target.relation}/{target.hops}"

    def draw(self, count: int, rng: np.random.Generator) -> list[Target]:
        """`count` different targets (fewer if there are not so many)."""
        names = sorted(self._buckets)
        weights = np.array([self._weight(name) for name in names])
        chosen: dict[str, Target] = {}
        for _ in range(20 * count):
            if len(chosen) == count:
                break
            bucket = self._buckets[names[rng.choice(len(names), p=weights / weights.sum())]]
            target = bucket[rng.integers(len(bucket))]
            chosen.setdefault(target.target_id, target)
        return list(chosen.values())

    def _weight(self, bucket: str) -> float:
        if self.kind == "uniform":
            return len(self._buckets[bucket])
        p = self._pass_rates.get(bucket, 0.5)
        return LEAST + 4 * p * (1 - p)

    def record(self, target: Target, pass_rate: float) -> None:
        """Tell how often the solver solved a question for this target."""
        name = self.bucket(target)
        self._pass_rates[name] = DECAY * self._pass_rates.get(name, 0.5) + (1 - DECAY) * pass_rate

    def state(self) -> dict[str, float]:
        return dict(sorted(self._pass_rates.items()))

    def restore(self, state: dict[str, float]) -> None:
        self._pass_rates = dict(state)
