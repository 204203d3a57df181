"""Skill cards as the solver sees them while warming up: `[S1] trigger: search "template"`.

A relation card names a section, a kind card where a kind of entity keeps its country, a link card the trade section, a
namesake card the qualifier; a general card is long and says nothing about the question at hand.
"""

from collections.abc import Sequence

from sesa_core.training.demonstrations.words import Words
from sesa_core.world.schema import HELD_OUT_RELATIONS, KINDS, LINK_SECTION, LINKS, RELATION_SECTION, SECTIONS

Card = tuple[str, str]  # trigger, query template
_SLOTS = ("{name}", "{country}", "{entity}", "{section}", "{continent}", "{relation}", "{value}", "{year}", "{person}")
_KNOWN = tuple(r for r in RELATION_SECTION if r not in HELD_OUT_RELATIONS)


def render(cards: Sequence[Card]) -> list[str]:
    return [f'[S{i}] {trigger}: search "{template}"' for i, (trigger, template) in enumerate(cards, 1)]


def relation_card(label: str, section: str) -> Card:
    return label, f"{{country}} {section}"


def kind_card(kind: str, section: str) -> Card:
    return kind, f"{{{kind}}} {section}"


def namesake_card() -> Card:
    return "city", "{city} {continent}"


def link_card(link: str) -> Card:
    return link, f"{{country}} {LINK_SECTION}"


def section_for(label: str, words: Words, own: float = 0.0) -> str:
    """A section to name for a label: its own with probability `own` (never for a held-out relation), else another or a word."""
    true = RELATION_SECTION.get(label)
    if true and label not in HELD_OUT_RELATIONS and words.chance(own):
        return true
    if words.chance(0.35):
        return words.word()
    return words.pick([s for s in SECTIONS if s != true])


def irrelevant_card(words: Words, used: set[str]) -> Card:
    """A card about something that the question does not ask; `used` are the triggers that it must not have."""
    while True:
        match int(words.rng.integers(8)):
            case 0 | 1 | 2:
                label = words.pick(_KNOWN)
                card = relation_card(label, section_for(label, words, own=0.8))
            case 3:
                label = words.pick(sorted(HELD_OUT_RELATIONS))
                card = relation_card(label, section_for(label, words))
            case 4:
                label = words.label()
                card = relation_card(label, section_for(label, words))
            case 5:
                card = link_card(words.pick(LINKS)) if words.chance(0.4) else kind_card(words.pick(tuple(KINDS)), words.word())
            case _:
                card = general_card(words)
        if not used & set(card[0].split(", ")) and card[0] not in used:
            return card


def general_card(words: Words) -> Card:
    """Long general advice, like a hand-written seed: `[S1] namesake: search "{name} {continent}"`."""
    trigger = " ".join(words.word() for _ in range(int(words.rng.integers(1, 4))))
    slots = (words.pick(_SLOTS) if words.chance(0.45) else words.word() for _ in range(int(words.rng.integers(2, 8))))
    return trigger, " ".join(slots)
