"""Whether a drafted card may enter: no leak, no instruction, no lesson that is known or was tombstoned.

Pure. Order: schema (by the caller), leak, injection, duplicates; each refusal names its rule and what it found. Invariant:
the judgement of a candidate depends on the bank, the tombstones and the candidates before it, never on arrival. Edge case:
without a lexicon the question's entities are its capitalised, quoted and numeric spans, its first word aside.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sesa_core.bank.holding import Holding
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.lesson import difference, gives_away, rendered_text, same_lesson, shared_keywords, subject, words
from sesa_core.cards.schema import SkillCard
from sesa_core.text.normalize import POSSESSIVE, names, tokens, visible
from sesa_core.text.tags import neutralise
from sesa_core.types import Failure

MOST_KEYWORDS = 0.5  # above this share of common triggers a tombstone of the same category speaks of the same lesson
_DIGITS = 6  # of a cosine
_LAST_DIGIT = 10.0**-_DIGITS
_QUOTED = re.compile(r"[\"\u201c\u2018']([^\"\u201c\u201d\u2018\u2019']{2,})[\"\u201d\u2019'](?!\w)")
_CAPITAL = "".join(c for c in map(chr, range(0x590)) if c.isupper())  # Latin, Greek, Cyrillic, Armenian: "Šibenik" is a name too
_CAPITALISED = re.compile(rf"\b[{_CAPITAL}][\w'\u2019.-]*(?:\s+(?:(?:of|the|de|la|von|van|and)\s+)?[{_CAPITAL}0-9][\w'\u2019.-]*)*")
_NUMERIC = re.compile(r"(?<![\w.])\d[\d.,:]*\d|(?<![\w.])\d(?!\w)")
_QUESTION_WORDS = frozenset(
    ["what", "which", "who", "whom", "whose", "when", "where", "why", "how", "name", "give", "is", "are", "was", "were", "did", "does"]
    + ["do", "in", "on", "at", "of", "the", "a", "an"]
)
_ARTICLES = frozenset(["a", "an", "the"])
_INSTRUCTIONS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|above|previous|system)"
    r"|\b(?:system|developer)\s+(?:prompt|message)\b|\byou are (?:now|an? )|\bas an ai\b|\bact as\b|\bpretend\b"
    r"|\b(?:always|just|simply)\s+(?:answer|reply|respond|output|say)\b|\b(?:answer|reply|respond)\s+(?:with|that)\s+[\"'\u2018\u2019\u201c]"
    r"|^\s*(?:system|assistant|user|human)\s*:|https?://",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Refusal:
    """A draft that did not become a card, and why. `other` names the card or tombstone that it collides with."""

    failure_id: str
    rule: str
    reason: str
    other: str = ""


@dataclass(frozen=True)
class Lexicon:
    """The world's entity names, and the questions that are kept for evaluation. Build it once a boundary."""

    entities: frozenset[tuple[str, ...]] = frozenset()  # token runs, as written
    longest: int = 0
    evaluation: frozenset[str] = frozenset()  # questions as `_plain` gives them

    @classmethod
    def of(cls, names: Iterable[str], evaluation_questions: Iterable[str]) -> "Lexicon":
        runs = frozenset(run for run in (tuple(_words(n)) for n in names) if run)
        return cls(runs, max(map(len, runs), default=0), frozenset(filter(None, map(_plain, evaluation_questions))))

    def entities_in(self, question: str) -> list[str]:
        """The names that stand in the question, longest first at each place."""
        if not self.entities:
            return spans(question)
        written, found, i = _words(question), [], 0
        while i < len(written):
            run = next((r for r in self._runs(written[i : i + self.longest]) if r in self.entities), ())
            found += [" ".join(run)] if run else []
            i += max(len(run), 1)
        return found

    @staticmethod
    def _runs(written: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The beginnings of a run of words, longest first, each also with its last word not in the possessive."""
        for n in range(len(written), 0, -1):
            yield tuple(written[:n])
            yield (*written[: n - 1], POSSESSIVE.sub("", written[n - 1]))


def _words(text: str) -> list[str]:
    """Words with their case, so that the element "Lead" is not found in "lead"."""
    return re.findall(r"\w+(?:['\u2019.-]\w+)*", text)


def spans(question: str) -> list[str]:
    """Capitalised, quoted and numeric spans of a question: what may name an entity when no lexicon does."""
    question = unicodedata.normalize("NFC", question)
    found = [m[1] for m in _QUOTED.finditer(question)] + [m[0] for m in _NUMERIC.finditer(question)]
    for match in _CAPITALISED.finditer(question):
        parts = match[0].split()
        while parts and parts[0].casefold() in _QUESTION_WORDS:
            parts = parts[1:]
        if parts:
            found += [" ".join(parts), *POSSESSIVE.split(" ".join(parts))]  # "Spain's King Felipe" names two
    return sorted(set(filter(None, (name.strip(" .'\u2019-") for name in found))))


def _plain(text: str) -> str:
    """The text as tokens without any article, so that a question is the same words alone and inside a longer text."""
    return " ".join(t for t in tokens(text, fold_accents=True) if t not in _ARTICLES)


def leak(card: SkillCard, failure: Failure, lexicon: Lexicon) -> tuple[str, str] | None:
    """(rule, what was found) if the card gives away an answer, the failing question's entities or an evaluation question."""
    text = rendered_text(card)
    answer = next((a for a in failure.reference_answers if gives_away(text, a)), None)
    if answer is not None:
        return "answer_leak", f"the reference answer {answer!r} stands in the card"
    entity = next((e for e in lexicon.entities_in(failure.question) if names(text, e)), None)
    if entity is not None:
        return "entity_leak", f"{entity!r} of the failing question stands in the card"
    for part in filter(None, map(_plain, _parts(card))):
        if part in lexicon.evaluation or any(question in part for question in lexicon.evaluation):
            return "evaluation_leak", f"an evaluation question stands in the card ({part[:80]!r})"
    return None


def _parts(card: SkillCard) -> tuple[str, ...]:
    """Every text of the card."""
    return (card.pattern, card.common_confusion, card.key_distinction, *card.trigger_keywords, *card.queries, card.example_question)


def injection(card: SkillCard) -> str | None:
    """The field text that carries a transcript tag or speaks to the model, None if there is none."""
    for part in _parts(card):
        seen = visible(unicodedata.normalize("NFKC", part))  # as a reader takes it, full-width letters and all
        if neutralise(seen) != seen or _INSTRUCTIONS.search(seen):
            return part
    return None


@dataclass
class Known:
    """The lessons that a candidate must differ from; grows by `add` as candidates are taken. Used within one plan only."""

    threshold: float
    held: Holding
    tombstones: Sequence[Tombstone] = ()
    tombstone_vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (M, D)
    taken: list[tuple[SkillCard, np.ndarray]] = field(default_factory=list)

    def add(self, card: SkillCard, vector: np.ndarray) -> None:
        self.taken.append((card, vector))

    def duplicate_of(self, card: SkillCard, vector: np.ndarray) -> tuple[str, str, str] | None:
        """(rule, id, reason) of the lesson that the candidate repeats, None if it is a new one. Tombstones are asked first."""
        near = _cosines(self.tombstone_vectors, vector)
        for i, stone in enumerate(self.tombstones):
            reason = _tombstone_match(card, stone.card, float(near[i]), self.threshold)
            if reason is not None:
                return "tombstoned", stone.tombstone_id, reason
        for similarity, other in self._nearest(card, vector):
            if same_lesson(card, other):
                return "duplicate", other.card_id, "the same subject and searches"
            if similarity >= self.threshold and difference(card, other) is None:
                return "duplicate", other.card_id, f"cosine {similarity:.3f}"
        return None

    def _nearest(self, card: SkillCard, vector: np.ndarray) -> list[tuple[float, SkillCard]]:
        """The cards that can be the same lesson, with their cosines, nearest first: near ones, and those of the same subject."""
        rough = self.held.vectors @ vector if len(self.held) else np.zeros(0)
        near = np.flatnonzero(rough >= self.threshold - _LAST_DIGIT).tolist()
        places = sorted({*near, *self._of_subject.get(subject(card), ())})
        found = list(zip(np.round(rough[places], _DIGITS).tolist(), self.held.at(places), strict=True))
        found += [(float(_cosines(v[None], vector)[0]), other) for other, v in self.taken]
        return sorted(found, key=lambda pair: -pair[0])

    @cached_property
    def _of_subject(self) -> dict[frozenset[str], list[int]]:
        """Places of held cards by what `subject` says of them."""
        places: dict[frozenset[str], list[int]] = {}
        for trigger, found in self.held.by_first_trigger().items():
            places.setdefault(words(trigger), []).extend(found.tolist())
        return places


def _cosines(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(N,) rounded, so that equal inputs compare equal in any order."""
    return np.round(matrix @ vector, _DIGITS) if len(matrix) else np.zeros(0, np.float32)


def _tombstone_match(card: SkillCard, buried: SkillCard, near: float, threshold: float) -> str | None:
    """Why the candidate counts as the buried lesson. One that advises another search, or differs in a number or a negation,
    does not, unless it stems from the same problem."""
    if card.source_problem_id and card.source_problem_id == buried.source_problem_id:
        return "the same source problem"
    if same_lesson(card, buried):
        return "the same subject and searches"
    if difference(card, buried) is not None:
        return None
    if near >= threshold:
        return f"cosine {near:.3f}"
    if card.category == buried.category and shared_keywords(card, buried) > MOST_KEYWORDS:
        return "the same category and most keywords"
    return None


def open_tombstones(tombstones: Sequence[Tombstone], boundary_id: int, lifted: Collection[str] = ()) -> list[int]:
    """Places of the tombstones that still block at that boundary."""
    return [i for i, t in enumerate(tombstones) if t.blocks(boundary_id) and t.tombstone_id not in lifted]
