"""A simulated solver whose cards have known effects: what the planted-cards experiment credits and evicts.

A problem retrieves three cards at random and is played by a group of eight. The effects of the cards that a rollout sees add up,
each by as much as the card is about the problem, and the rollout succeeds with the resulting chance: the noise is that of real
0/1 outcomes. Invariant: everything follows from the seed, the settings and which cards are present. Edge case: a chance stays
within [.02, .98], so a card's real effect is smaller than the planted one where that bound is met; difficulty is drawn so that
it rarely is, except in a `cramped` world.
"""

from dataclasses import dataclass

import numpy as np

from sesa_core.bank.credit.uplift import compare
from sesa_core.cards.schema import Origin, SkillCard, card_from_draft
from sesa_core.judge.base import CardDraft
from sesa_core.rng import stream
from sesa_core.rollout.solver import withheld_samples
from sesa_core.types import CardUse, Problem, Target

GROUP, SHOWN, PROBLEMS, STEPS_PER_SEGMENT = 8, 3, 32, 10
LEVELS = tuple(round(i / 10, 1) for i in range(-5, 6))
PER_LEVEL = 20
MIXED = 0.3  # a card that helps by this at half of the problems and hurts by it at the others
EASE, ABOUT, CHANCE = (0.3, 0.7), (0.4, 0.8), (0.02, 0.98)  # pass rate without cards; similarity; bounds of a success's chance
_TARGET = Target("target", "", 1)
KINDS = ("country", "city", "river", "element", "writer", "museum", "bridge", "airline", "comet", "opera", "dynasty", "glacier")
ATTRIBUTES = ("anthem", "currency", "founder", "length", "patron", "emblem", "curator", "climate", "symbol", "treaty")
ATTRIBUTES += ("motto", "architect", "tributary", "discoverer", "successor", "density", "librettist", "altitude", "flagship", "capital")


@dataclass(frozen=True)
class Planted:
    """A card with its lesson and what it really does; `mixed` cards do `effect` or its opposite, by problem."""

    card: SkillCard
    subject: tuple[str, str]
    effect: float
    mixed: bool = False


def lesson(subject: tuple[str, str], wording: int = 0) -> CardDraft:
    """One lesson in three wordings: as written first, in other sentences, and with other triggers and searches as well."""
    kind, attribute = subject
    frames = (
        (
            "The question asks for the {a} of a {k}.",
            "The {a} is taken from the first passage.",
            "Search the {k} with its {a}, then read it off.",
        ),
        (
            "Some {k} is named and its {a} is wanted.",
            "A neighbouring fact is given instead of the {a}.",
            "Only a passage on the {a} decides.",
        ),
        ("To answer, the {a} that a {k} has must be found.", "One answers from memory.", "A second search for the {a} settles it."),
    )
    triggers = ((f"{kind} {attribute}", attribute), (f"{kind} {attribute}", attribute), (f"{attribute} of the {kind}", f"its {attribute}"))
    searches = ((f"{{{kind}}} {attribute}",), (f"{{{kind}}} {attribute}",), (f"{attribute} page of {{{kind}}}",))
    pattern, confusion, distinction = (text.format(k=kind, a=attribute) for text in frames[wording])
    return CardDraft("attribute_lookup", pattern, confusion, distinction, triggers[wording], searches[wording])


def plant(seed: int) -> list[Planted]:
    """The bank at the start: `PER_LEVEL` cards of every effect and as many mixed ones, their lessons dealt out at random."""
    subjects = [(k, a) for k in KINDS for a in ATTRIBUTES]
    order = stream(seed, "lessons").permutation(len(subjects))
    effects = [(e, False) for e in LEVELS for _ in range(PER_LEVEL)] + [(MIXED, True)] * PER_LEVEL
    planted = []
    for (effect, mixed), place in zip(effects, order, strict=True):
        subject = subjects[place]
        name = f"card-{subject[0]}-{subject[1]}"
        card = card_from_draft(lesson(subject), card_id=name, origin=Origin.DISTILLED, source_problem_id=f"origin-{place}")
        planted.append(Planted(card, subject, effect, mixed))
    return sorted(planted, key=lambda p: p.card.card_id)


@dataclass(frozen=True)
class Play:
    """One use and what only the simulation knows: the card's real effect at that problem, and the log likelihood ratio of the
    outcomes with the card's effect to those without it."""

    use: CardUse
    effect: float
    truth: float


class World:
    """The planted cards and the problems that show them. In a `cramped` one difficulty is drawn without regard to the cards."""

    def __init__(self, seed: int, cramped: bool = False) -> None:
        self.seed, self.cramped, self.planted = seed, cramped, plant(seed)
        self.names = [p.card.card_id for p in self.planted]
        self._effects = np.array([p.effect for p in self.planted])
        self._mixed = np.array([p.mixed for p in self.planted])

    def _difficulty(self, effects: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(P,) chances of success without a card. Where the problem's effects (P, C) leave room, no sum of them meets a bound;
        where they leave none, both bounds are overstepped alike."""
        if self.cramped:
            return rng.uniform(*EASE, len(effects))
        low, high = CHANCE[0] - np.minimum(effects, 0).sum(axis=1), CHANCE[1] - np.maximum(effects, 0).sum(axis=1)
        return np.where(low < high, rng.uniform(np.minimum(low, high), np.maximum(low, high)), (low + high) / 2)

    def _saw(self, chosen: np.ndarray, step: int, withhold: str) -> np.ndarray:
        """(P, C, G) whether a rollout sees a card: the draw of real rollouts."""
        saw = np.ones((*chosen.shape, GROUP), bool)
        for p, row in enumerate(chosen):
            problem = Problem(f"p-{step}-{p}", "", _TARGET, (), step=step)
            for c, place in enumerate(row):
                saw[p, c, list(withheld_samples(self.seed, problem, self.names[place], GROUP, withhold))] = False
        return saw

    def play(self, present: np.ndarray, step: int, withhold: str) -> list[Play]:
        """The uses of one step's problems; `present` are the places of the cards that are still in the bank."""
        rng = stream(self.seed, "play", step)
        chosen = present[rng.random((PROBLEMS, len(present))).argsort(axis=1)[:, :SHOWN]]  # (P, C)
        about = np.round(rng.uniform(*ABOUT, chosen.shape), 6)
        sign = np.where(self._mixed[chosen], rng.choice((-1, 1), chosen.shape), 1)
        effects = self._effects[chosen] * sign * about / np.mean(ABOUT)  # (P, C)
        saw = self._saw(chosen, step, withhold)
        added = (effects[:, :, None] * saw).sum(axis=1) + self._difficulty(effects, rng)[:, None]  # (P, G)
        rewards = rng.random((PROBLEMS, GROUP)) < np.clip(added, *CHANCE)
        without = added[:, None] - effects[:, :, None] * saw  # (P, C, G), as if nobody had seen the card
        off, on = np.clip(without, *CHANCE), np.clip(without + effects[:, :, None], *CHANCE)
        ratio = np.where(rewards[:, None], np.log(on / off), np.log((1 - on) / (1 - off)))
        truth, real = (ratio * saw).sum(axis=2), (on - off).mean(axis=2)
        plays = []
        for p, c in np.ndindex(*chosen.shape):
            name, mine, outcomes = self.names[chosen[p, c]], saw[p, c], rewards[p].astype(float)
            sides = tuple(outcomes[mine].tolist()), tuple(outcomes[~mine].tolist())
            use = CardUse(f"use/{step}/{p}/{name}", name, f"p-{step}-{p}", step, step, float(about[p, c]), *sides, True)
            plays.append(Play(use, float(real[p, c]), float(truth[p, c])))
        return plays


def known_effect_evidence(use: CardUse, effect: float) -> float:
    """The log likelihood ratio, to first order, of a test that is told the card's effect and has only the comparison to go by."""
    found = compare(use)
    slope = 2 * np.log((0.5 + effect / 2) / (0.5 - effect / 2))  # log odds, half of the effect on either side of a coin
    return float(slope * found.weight * found.difference - slope**2 * found.chance / 2) if found else 0.0
