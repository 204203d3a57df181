"""Reading practice: one passage of labelled values, several questions about it.

Matching the asked label to its value is the hardest thing that the warm start teaches, and an ordinary demonstration holds
one example of it. Practice holds up to four, in few tokens. Labels are real ones (held-out ones too: the words get trained,
the section is invented) and made-up ones; values are of every kind.
"""

from sesa_core.training.demonstrations import cards as deck
from sesa_core.training.demonstrations.segments import ENVIRONMENT, MODEL, Segment, answer_turn, solver_prompt
from sesa_core.training.demonstrations.words import Words
from sesa_core.world.questions import TEMPLATES
from sesa_core.world.schema import LINKS, RELATIONS


def reading(words: Words) -> list[Segment]:
    """A transcript whose first question searches; the others ask again about what was found."""
    count = int(words.rng.integers(2, 6))
    labels = list(dict.fromkeys(words.pick((*RELATIONS, *LINKS)) if words.chance(0.6) else words.label() for _ in range(count)))
    values = [words.value() for _ in labels]
    subject, section = words.name(), words.word()
    order = [int(i) for i in words.rng.permutation(len(labels))][:4]
    card = deck.render([deck.relation_card(labels[order[0]], section)])
    facts = " ".join(f"{label}: {value}." for label, value in zip(labels, values, strict=True))
    segments = [
        _question(words, labels[order[0]], subject, card),
        (MODEL, f"<search>{subject} {section}</search>"),
        (ENVIRONMENT, f"<information>{subject} {section}. {facts}</information>"),
        answer_turn(values[order[0]]),
    ]
    for i in order[1:]:
        segments += [_question(words, labels[i], subject, []), answer_turn(values[i])]
    return segments


def _question(words: Words, label: str, subject: str, cards: list[str]) -> Segment:
    return solver_prompt(words.pick(TEMPLATES).format(relation=label, subject=subject), cards)
