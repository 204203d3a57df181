"""Invented and borrowed words for counterfactual demonstrations; only training entities are ever named."""

import re

import numpy as np
from transformers import PreTrainedTokenizerFast

from sesa_core.world.load import World
from sesa_core.world.schema import HELD_OUT_KINDS, HELD_OUT_RELATIONS, SECTIONS

_SYLLABLES = ("ka", "lo", "mi", "ren", "tu", "zo", "bel", "ash", "qui", "dor", "ny", "vex", "pa", "sho", "ul", "gra", "sto", "ing")
_RESERVED = frozenset((*SECTIONS, *HELD_OUT_RELATIONS, *HELD_OUT_KINDS))  # never made up by chance


class Words:
    """A source of names, labels and section words, drawn from `rng`.

    After `learn_vocabulary`, many are made of random vocabulary tokens: a token that was never copied while training cannot
    be copied later, so every token must have been.
    """

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        train = set(world.countries_by_split["train"])
        self.rng = rng
        self.names = sorted({e.name for e in world.entities if e.country in train} | train)
        self.values = sorted({v for n in train for r, v in world.countries[n].facts.items() if r not in HELD_OUT_RELATIONS})
        texts = (d.text for d in world.documents)
        self.plain = sorted({w for t in texts for w in re.findall(r"\b[a-z]{4,10}\b", t)} - _RESERVED)
        self._upper: list[str] = []
        self._lower: list[str] = []
        self._tails: list[str] = []

    def learn_vocabulary(self, tokenizer: PreTrainedTokenizerFast) -> None:
        tokens = [tokenizer.decode([i]) for i in range(len(tokenizer))]
        self._upper = [t[1:] for t in tokens if re.fullmatch(r" [A-Z][A-Za-z'-]*", t)]
        self._lower = [t[1:] for t in tokens if re.fullmatch(r" [a-z]{3,}", t) and t[1:] not in _RESERVED]
        self._tails = [t for t in tokens if re.fullmatch(r"[a-z]+| [A-Za-z][a-z]+", t)]

    def pick(self, options):
        """One element of a sequence, uniformly."""
        return options[int(self.rng.integers(len(options)))]

    def shuffled(self, options):
        """The elements of a sequence in a drawn order, as a list."""
        return [options[int(i)] for i in self.rng.permutation(len(options))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def word(self) -> str:
        """A lower-case word, e.g. for a section that does not exist."""
        return self.pick(self.plain)

    def label(self) -> str:
        """A relation that nobody knows: one or two words."""
        return " ".join(self.pick(self._lower) if self._lower and self.chance(0.6) else self.word() for _ in range(1 + self.chance(0.5)))

    def value(self) -> str:
        """Something that a fact may hold: a real value (lower case, numbers and dates among them) or a name."""
        return self.pick(self.values) if self.chance(0.4) else self.name()

    def name(self) -> str:
        """A name: of random tokens, a real one, two halves joined, a value, or syllables."""
        if self._upper and self.chance(0.6):
            tails = (self.pick(self._tails) for _ in range(self.pick((0, 0, 1, 2))))
            return (self.pick(self._upper) + "".join(tails)).strip()
        kind = self.rng.random()
        first, second = self.pick(self.names), self.pick(self.names)
        if kind < 0.35:
            return first
        if kind < 0.7:
            return first[: max(2, len(first) // 2)].strip() + second[len(second) // 2 :].strip()
        if kind < 0.85:
            return self.pick(self.values)
        return "".join(self.pick(_SYLLABLES) for _ in range(int(self.rng.integers(2, 5)))).capitalize()
