"""What a card teaches, for telling lessons apart: the text that is embedded and the lexical differences that matter.

A small embedder sees "2-hop" and "3-hop", or "do" and "do not", as the same text, and calls a card about the anthem and one
about the currency near when they share a sentence frame. So nearness of vectors only counts where `difference` finds none.
Invariant: `difference` is symmetric. Edge case: a query that is nothing but placeholders is compared with their names.
"""

import re
from functools import lru_cache
from itertools import product

from sesa_core.cards.schema import SkillCard
from sesa_core.text.normalize import names, tokens

SAME_SEARCH = 0.5  # token Jaccard at which two queries send the policy to the same place
_PLACEHOLDER = re.compile(r"[{\[<][^{}\[\]<>]*[}\]>]")
_NUMBER_WORDS = {w: str(i) for i, w in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], start=1)}
_NEGATIONS = frozenset(
    ["not", "no", "never", "without", "nor", "neither", "cannot", "cant", "dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "wont"]
)
_FUNCTION_WORDS = frozenset(["a", "an", "the", "of", "in", "on", "at", "to", "for", "and", "or", "is", "was", "by", "with", "from"])
_EVERYDAY_WORDS = _FUNCTION_WORDS | {"it", "its", "no", "not", "my", "as", "be", "do", "so", "me", "us", "if", "are", "that", "this"}


def embedding_text(card: SkillCard) -> str:
    """What stands for a card in vector space. The triggers weigh most: they are what a question has in common with its card."""
    triggers = ", ".join(card.trigger_keywords)
    return ". ".join([triggers] * 3 + [card.pattern])


def rendered_text(card: SkillCard) -> str:
    """Everything of a card that a policy may be shown, in any style; the example question is not part of it."""
    parts = (card.pattern, card.common_confusion, card.key_distinction, *card.trigger_keywords, *card.queries)
    return " | ".join(parts)


def gives_away(text: str, answer: str) -> bool:
    """Whether the answer stands in the text as a run of normalised tokens.

    An answer of everyday words alone (".in", a country's web code) counts only as it is written, and only if it is more
    than such words; else every card would hold it.
    """
    if set(tokens(answer, fold_accents=True)) <= _EVERYDAY_WORDS:
        bare = all(c.isalnum() or c.isspace() for c in answer)
        return not bare and re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text) is not None
    return names(text, answer)


@lru_cache(maxsize=8192)
def words(text: str) -> frozenset[str]:
    """Distinct tokens without function words, accents folded."""
    return frozenset(tokens(text, fold_accents=True)) - _FUNCTION_WORDS


@lru_cache(maxsize=8192)
def _statement(text: str) -> tuple[frozenset[str], bool]:
    """(numbers, whether something is negated) of a text."""
    found = tokens(text, fold_accents=True)
    numbers = frozenset(_NUMBER_WORDS.get(t, t) for t in found if t in _NUMBER_WORDS or any(c.isdigit() for c in t))
    return numbers, any(t in _NEGATIONS for t in found)


def _search_words(query: str) -> frozenset[str]:
    return words(_PLACEHOLDER.sub(" ", query)) or words(query)


def same_search(left: str, right: str) -> bool:
    """Whether two query templates send the policy to the same place."""
    a, b = _search_words(left), _search_words(right)
    return len(a & b) >= SAME_SEARCH * len(a | b) if a | b else left == right


def shared_keywords(left: SkillCard, right: SkillCard) -> float:
    """Share of the shorter trigger list that stands in the other, in [0, 1]."""
    a, b = ({words(k) for k in card.trigger_keywords} for card in (left, right))
    return len(a & b) / min(len(a), len(b))


def _same_subject(left: SkillCard, right: SkillCard) -> bool:
    """Whether the first trigger of one card stands among the other's ("anthem" in "national anthem")."""
    for one, other in ((left, right), (right, left)):
        first = words(one.trigger_keywords[0])
        if any(first <= words(k) for k in other.trigger_keywords):
            return True
    return False


def difference(left: SkillCard, right: SkillCard) -> str | None:
    """What makes two cards different lessons however near their vectors are, None if nothing does."""
    if not _same_subject(left, right):
        return "subject"
    if not any(same_search(a, b) for a, b in product(left.queries, right.queries)):
        return "search"
    (numbers, negated), (other_numbers, other_negated) = (
        _statement(" | ".join((c.pattern, c.key_distinction, *c.trigger_keywords))) for c in (left, right)
    )
    if numbers != other_numbers:
        return "number"
    return "negation" if negated != other_negated else None


def subject(card: SkillCard) -> frozenset[str]:
    """What the card is about: the words of its first trigger. Equal for cards that are the `same_lesson`."""
    return words(card.trigger_keywords[0])


def same_lesson(left: SkillCard, right: SkillCard) -> bool:
    """Same first trigger and searches, with no difference in a number or a negation: no vector is needed to see it.

    The category does not count: one failure's missed step is the next one's misread passage, and the advice is the same.
    """
    if subject(left) != subject(right):
        return False
    searches = ({_search_words(q) for q in card.queries} for card in (left, right))
    return next(searches) == next(searches) and difference(left, right) is None
