"""How cards look in a prompt: the one renderer of training, evaluation and serving.

Pure and deterministic. Invariant: whole cards only, within the token budget, in the order given; nothing inside a card
can be read as a transcript tag. Edge case: a card that does not fit ends the list, so a prompt never shows a lower-ranked
card in place of a better one; its number is its place ([S1], [S2], ...).
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from sesa_core.cards.schema import SkillCard
from sesa_core.text.tags import one_line
from sesa_core.types import ShownCard

Style = Literal["compact", "full"]


class Ranked(Protocol):
    """A card as retrieval chose it."""

    card: SkillCard
    similarity: float


def card_line(card: SkillCard, number: int, style: Style) -> str:
    """The text of one card, without a line break at its end. `compact` is one line, `full` four short ones."""
    if style == "compact":
        return f'[S{number}] {one_line(card.trigger_keywords[0])}: search "{one_line(card.queries[0])}"'
    searches = "; ".join(f'"{one_line(q)}"' for q in card.queries)
    return "\n".join(
        (
            f"[S{number}] {one_line(card.pattern)}",
            f"  Often confused with: {one_line(card.common_confusion)}",
            f"  Look for: {one_line(card.key_distinction)}",
            f"  Try searches: {searches}",
        )
    )


def render_cards(
    cards: Sequence[Ranked], style: Style, max_tokens: int, count_tokens: Callable[[str], int]
) -> tuple[str, tuple[ShownCard, ...]]:
    """The block that stands before the question ("" without cards, else ending in a line break), and what it shows."""
    block, shown = "", []
    for number, ranked in enumerate(cards, start=1):
        line = card_line(ranked.card, number, style)
        longer = f"{block}{line}\n"
        if count_tokens(longer) > max_tokens:
            break
        block = longer
        shown.append(ShownCard(card_id=ranked.card.card_id, similarity=ranked.similarity, text=line))
    return block, tuple(shown)
