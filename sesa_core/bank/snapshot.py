"""The bank as rollouts see it: the active cards of ONE boundary and their vectors, frozen.

Made once per segment and shared with every worker; nothing can change it, it pickles. Invariant: the same questions give the
same cards in any order and any batch; equal ranks are decided by card id. Edge case: a bank without active cards, or a
question that no card is near to, retrieves nothing, and that is a valid answer.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sesa_core.cards.lesson import gives_away, rendered_text
from sesa_core.cards.schema import EXAMPLE_CHARS, CardState, SkillCard
from sesa_core.embed.base import Embedder
from sesa_core.text.normalize import tokens

if TYPE_CHECKING:
    from sesa_core.bank.store import At, BankStore

PRIOR_USES = 4.0  # uses without effect that every card is taken to have had
_ROUND = 6  # decimals of a similarity
_FEW = 32  # cards that are ranked exactly before anybody asks for more
_ROUGH = 1e-4  # more than a float32 product can be off


@dataclass(frozen=True)
class RetrievedCard:
    """A card and the cosine similarity (not the rank) that chose it."""

    card: SkillCard
    similarity: float


def utility(card: SkillCard) -> float:
    """What a use of the card is worth, in (-1, 1), shrunk towards 0: its uplift where that was compared (`contrastive` credit),
    else its net effect per use with `PRIOR_USES` more."""
    if card.uplift_n:
        return card.uplift_mean
    return card.net / (card.helpful_count + card.hurt_count + PRIOR_USES)


def question_key(question: str) -> tuple[str, ...]:
    """Equal for near-identical questions: the same words whatever their order, case, accents and punctuation."""
    return tuple(sorted(tokens(question[:EXAMPLE_CHARS], fold_accents=True)))


class BankSnapshot:
    """Active cards by id, `matrix` (N, D) float32 with unit rows, `bank_version` the boundary they are of. Read only."""

    def __init__(self, cards: Sequence[SkillCard], matrix: np.ndarray, embedder: Embedder, bank_version: int | None) -> None:
        self.cards = tuple(cards)
        self.matrix = np.array(matrix, dtype=np.float32)
        self.matrix.setflags(write=False)
        self.embedder, self.bank_version = embedder, bank_version
        self._utility = np.array([utility(c) for c in self.cards], dtype=np.float64)
        self._sources = np.array([c.source_problem_id for c in self.cards], dtype=object)
        self._examples: dict[tuple[str, ...], list[int]] = {}
        self._texts = [rendered_text(c) for c in self.cards]
        self._triggers: dict[str, list[tuple[int, tuple[str, ...]]]] = {}  # first token -> (place, all tokens) of a trigger
        for i, card in enumerate(self.cards):
            for words in filter(None, (tokens(k, fold_accents=True) for k in card.trigger_keywords)):
                self._triggers.setdefault(words[0], []).append((i, words))
        for i, card in enumerate(self.cards):
            if card.example_question:
                self._examples.setdefault(question_key(card.example_question), []).append(i)

    @classmethod
    def open(
        cls, store: "BankStore", at: "At" = None, *, task_family: str | None = None, dataset: str | None = None, step: int | None = None
    ) -> "BankSnapshot":
        """The active cards of a boundary; with a scope, only those of that task family and dataset or of none; with a step,
        only those valid at it."""
        row = store.boundary(at)
        bank_version = row.boundary_id if row is not None else None
        held = store.holding(bank_version)

        def fits(card: SkillCard) -> bool:
            scoped = (task_family is None or card.task_family in ("", task_family)) and (dataset is None or card.dataset in ("", dataset))
            ended = step is not None and card.valid_until_step is not None and card.valid_until_step < step
            return card.state is CardState.ACTIVE and scoped and not ended

        places = [i for i, card in enumerate(held) if fits(card)]
        return cls(held.at(places), held.vectors[places], store.embedder, bank_version)

    def __len__(self) -> int:
        return len(self.cards)

    def _vectors(self, questions: Sequence[str]) -> np.ndarray:
        """(Q, D) float32."""
        return np.asarray(self.embedder.embed_questions(questions), dtype=np.float32)

    def _exact(self, vector: np.ndarray, places: np.ndarray) -> np.ndarray:
        """(P,) cosines of a question's vector with the cards at `places`, alike in any batch: a product of whole matrices
        differs in its last bits with their shapes, and would decide ties."""
        return np.round((self.matrix[places].astype(np.float64) * vector.astype(np.float64)).sum(axis=1), _ROUND)

    def retrieve(
        self,
        questions: Sequence[str],
        *,
        top_k: int,
        floor: float | None = None,
        exclude_sources: Sequence[Collection[str]] | None = None,
        forbidden_answers: Sequence[Sequence[str]] | None = None,
        utility_weight: float = 0.0,
        trigger_weight: float = 0.0,
    ) -> list[tuple[RetrievedCard, ...]]:
        """For each question at most `top_k` cards at or above `floor` (None: the embedder's own), best first.

        For the floor and for the rank, a card of which a trigger keyword stands in the question (as a run of tokens) counts as
        half of `trigger_weight` nearer, any other as half of it farther; the similarity that is returned stays the cosine.
        `exclude_sources[i]` are the problem ids that question i stems from: cards made from them, or from a near-identical
        question, are left out. `forbidden_answers[i]` are its reference answers: cards that hold one are left out (training
        only). Both None when serving.
        """
        if not questions or not self.cards or top_k == 0:
            return [() for _ in questions]
        floor = self.embedder.floor if floor is None else floor
        vectors = self._vectors(questions)
        rough = vectors @ self.matrix.T  # (Q, N)
        found = []
        for i, question in enumerate(questions):
            bonus = self._trigger_bonus(question, trigger_weight)
            allowed = rough[i] + bonus >= floor - _ROUGH
            if exclude_sources is not None:
                allowed &= self._of_other_problems(question, exclude_sources[i])
            answers = forbidden_answers[i] if forbidden_answers is not None else ()
            found.append(self._first(self._ranked(vectors[i], rough[i], allowed, bonus, floor, utility_weight), top_k, answers))
        return found

    def _of_other_problems(self, question: str, sources: Collection[str]) -> np.ndarray:
        """(N,) True for cards that do not stem from this question."""
        other = ~np.isin(self._sources, sorted(s for s in sources if s))
        other[self._examples.get(question_key(question), [])] = False
        return other

    def _trigger_bonus(self, question: str, weight: float) -> np.ndarray:
        """(N,) half of `weight` where a trigger keyword of the card stands in the question, else minus that."""
        bonus = np.full(len(self.cards), -weight / 2)
        if weight:
            asked = tokens(question, fold_accents=True)
            for at, word in enumerate(asked):
                for place, trigger in self._triggers.get(word, ()):
                    if asked[at : at + len(trigger)] == trigger:
                        bonus[place] = weight / 2
        return bonus

    def _ranked(
        self, vector: np.ndarray, rough: np.ndarray, allowed: np.ndarray, bonus: np.ndarray, floor: float, utility_weight: float
    ) -> Iterator[tuple[int, float]]:
        """(place, similarity) of allowed cards, best first; cards are sorted by id, so a stable sort breaks ties by id.

        The exact cosines of the first few decide whom they must; those of the others are only worked out if somebody asks on.
        """
        places, worth = np.flatnonzero(allowed), bonus + utility_weight * self._utility
        if len(places) > 2 * _FEW:
            guess = rough[places] + worth[places]
            bar = np.partition(guess, -_FEW)[-_FEW]
            first = self._exactly_ranked(vector, places[guess >= bar - 2 * _ROUGH], bonus, floor, worth)
            ahead = [(place, near) for place, near in first if near + worth[place] >= bar - _ROUGH]  # of everybody else
            yield from ahead
            places = np.setdiff1d(places, [place for place, _ in ahead])
        yield from self._exactly_ranked(vector, places, bonus, floor, worth)

    def _exactly_ranked(
        self, vector: np.ndarray, places: np.ndarray, bonus: np.ndarray, floor: float, worth: np.ndarray
    ) -> Iterator[tuple[int, float]]:
        near = self._exact(vector, places)
        kept = near + bonus[places] >= floor
        places, near = places[kept], near[kept]
        order = np.argsort(-(near + worth[places]), kind="stable")
        return zip(places[order].tolist(), near[order].tolist(), strict=True)

    def _first(self, ranked: Iterator[tuple[int, float]], top_k: int, answers: Sequence[str]) -> tuple[RetrievedCard, ...]:
        chosen: list[RetrievedCard] = []
        for place, near in ranked:
            if not any(gives_away(self._texts[place], answer) for answer in answers):
                chosen.append(RetrievedCard(self.cards[place], near))
            if len(chosen) == top_k:
                break
        return tuple(chosen)

    def measure(self, question: str, trigger_weight: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every card, in the order of `cards`: its similarity to the question, its trigger bonus and its utility, (N,) each."""
        if not self.cards:
            return np.zeros(0), np.zeros(0), np.zeros(0)
        near = self._exact(self._vectors([question])[0], np.arange(len(self.cards)))
        return near, self._trigger_bonus(question, trigger_weight), self._utility

    def decoys(self, questions: Sequence[str], counts: Sequence[int], rng: np.random.Generator) -> list[tuple[RetrievedCard, ...]]:
        """For question i `counts[i]` cards drawn from those that are irrelevant to it: below the embedder's floor, no trigger in it."""
        if not questions or not self.cards:
            return [() for _ in questions]
        found = []
        for question, vector, count in zip(questions, self._vectors(questions), counts, strict=True):
            near = self._exact(vector, np.arange(len(self.cards)))
            places = np.flatnonzero((near < self.embedder.floor) & (self._trigger_bonus(question, 1.0) < 0))
            drawn = rng.permutation(places)[:count].tolist()
            found.append(tuple(RetrievedCard(self.cards[p], float(near[p])) for p in drawn))
        return found

    def placebo(self, questions: Sequence[str], counts: Sequence[int]) -> list[tuple[RetrievedCard, ...]]:
        """For question i the `counts[i]` least similar cards, least similar first: equal in number, irrelevant in content."""
        if not questions or not self.cards:
            return [() for _ in questions]
        found, everywhere = [], np.arange(len(self.cards))
        for vector, count in zip(self._vectors(questions), counts, strict=True):
            near = self._exact(vector, everywhere) if count else np.zeros(0)
            places = np.argsort(near, kind="stable")[:count].tolist()
            found.append(tuple(RetrievedCard(self.cards[p], float(near[p])) for p in places))
        return found
