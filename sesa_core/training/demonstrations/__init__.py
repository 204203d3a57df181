"""Warm-start demonstrations: excellent mechanics, deliberately open strategy, cards that must be read."""

import numpy as np
from transformers import PreTrainedTokenizerFast

from sesa_core.training.demonstrations.habits import CLEAN, OPEN, Habits
from sesa_core.training.demonstrations.practice import reading
from sesa_core.training.demonstrations.proposer import ProposerDemonstrations
from sesa_core.training.demonstrations.segments import Segment
from sesa_core.training.demonstrations.solver import SolverDemonstrations
from sesa_core.training.demonstrations.words import Words
from sesa_core.world.load import World

__all__ = ["CLEAN", "OPEN", "Demonstrations", "Habits", "Segment"]


class Demonstrations:
    """Demonstrations for both roles, all drawn from `rng`; `reseed` goes on with another stream."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.words = Words(world, rng)
        self.solver = SolverDemonstrations(world, self.words)
        self.proposer = ProposerDemonstrations(world, self.words)

    def reseed(self, rng: np.random.Generator) -> None:
        self.words.rng = rng

    def learn_vocabulary(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.words.learn_vocabulary(tokenizer)

    def draw(
        self, habits: Habits, practice_share: float = 0.0, easy: bool = False, solver_share: float = 0.7, alike: float = 0.0
    ) -> list[Segment]:
        """One demonstration: reading practice (a share `alike` of it with labels that share a word), else a solver's or a
        proposer's."""
        if self.words.chance(practice_share):
            return reading(self.words, bool(alike) and self.words.chance(alike))
        if self.words.chance(solver_share):
            return self.solver.draw(habits, easy)
        return self.proposer.draw(habits)
