"""Short copying practice for the first part of the warm start: a list of labelled names, one of which is asked back."""

from sesa_core.training.demonstrations import cards as deck
from sesa_core.training.demonstrations.segments import ENVIRONMENT, MODEL, Segment, answer_turn, solver_prompt
from sesa_core.training.demonstrations.words import Words


def copying(words: Words) -> list[Segment]:
    labels = [words.label() for _ in range(int(words.rng.integers(2, 5)))]
    values = [words.name() for _ in labels]
    subject, section = words.name(), words.word()
    asked = int(words.rng.integers(len(labels)))
    facts = " ".join(f"{label}: {value}." for label, value in zip(labels, values, strict=True))
    card = deck.render([deck.relation_card(labels[asked], section)])
    return [
        solver_prompt(f"Name the {labels[asked]} of {subject}.", card),
        (MODEL, f"<search>{subject} {section}</search>"),
        (ENVIRONMENT, f"<information>{subject} {section}. {facts}</information>"),
        answer_turn(values[asked]),
    ]
