"""Problems of earlier steps, to fill slots that this step's proposer left empty. Cleared periodically; never holds dummies.

Invariant: drawing prefers problems that the solver solves about half of the time, and no problem twice in one draw.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import TypeAdapter

from sesa_core.types import Problem

_PROBLEM = TypeAdapter(Problem)


class ProblemPool:
    """Holds the latest problems with their last pass rate, keyed by question."""

    def __init__(self, reset_steps: int) -> None:
        self.reset_steps = reset_steps
        self._entries: dict[str, tuple[Problem, float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def begin_step(self, step: int) -> None:
        """Clear at every `reset_steps`-th step (steps count from 1)."""
        if (step - 1) % self.reset_steps == 0:
            self._entries.clear()

    def add(self, problem: Problem, pass_rate: float) -> None:
        self._entries[problem.question] = (problem, pass_rate)

    def draw(self, count: int, taken: Sequence[str], rng: np.random.Generator) -> list[Problem]:
        """At most `count` problems whose question is not in `taken`; weight 0.05 + p(1 - p)."""
        entries = [e for question, e in self._entries.items() if question not in set(taken)]
        if not entries or count <= 0:
            return []
        weights = np.array([0.05 + p * (1 - p) for _, p in entries])
        chosen = rng.choice(len(entries), size=min(count, len(entries)), replace=False, p=weights / weights.sum())
        return [entries[i][0] for i in chosen]

    def state(self) -> list[dict]:
        return [{"problem": _PROBLEM.dump_python(p, mode="json"), "pass_rate": r} for p, r in self._entries.values()]

    def restore(self, state: Sequence[dict]) -> None:
        self._entries = {}
        for entry in state:
            self.add(_PROBLEM.validate_python(entry["problem"], strict=False), entry["pass_rate"])
