"""Transcripts as (role, text) segments, and the rewriting that makes a demonstration counterfactual.

A rewritten demonstration is as consistent as the real one but about names, labels and sections that do not exist, so the
only way to be right is to copy from the context.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from sesa_core.world.passages import Document

PROMPT, MODEL, ENVIRONMENT = "prompt", "model", "environment"
Segment = tuple[str, str]
_FACT = re.compile(r"([a-z][a-z ]*): ([^:.]+)\.")
_SECTION = re.compile(r"<information>[^.]* ([a-z]+)\. ")


def solver_prompt(question: str, cards: Sequence[str] = ()) -> Segment:
    """System message (the cards, if any) and user message, each followed by a line break as the chat template does."""
    return PROMPT, "".join(f"{card}\n" for card in cards) + f"Question: {question}\n"


def proposer_prompt(relation: str, answer: str, hops: int) -> Segment:
    return PROMPT, f"Target: {relation}: {answer}\nHops: {hops}\n"


def search_turn(query: str, document: Document) -> list[Segment]:
    """The model's search and what the environment writes back."""
    return [(MODEL, f"<search>{query}</search>"), (ENVIRONMENT, f"<information>{document.title}. {document.text}</information>")]


def answer_turn(answer: str) -> Segment:
    return MODEL, f"<answer>{answer}</answer>"


def question_turn(question: str) -> Segment:
    return MODEL, f"<question>{question}</question>"


def substitute(segments: Sequence[Segment], mapping: Mapping[str, str]) -> list[Segment]:
    """Replace whole strings in every segment, all at once, the longest first."""
    mapping = {old: new for old, new in mapping.items() if old and old != new}
    if not mapping:
        return list(segments)
    alternatives = "|".join(re.escape(old) for old in sorted(mapping, key=lambda o: (-len(o), o)))
    pattern = re.compile(rf"(?<![A-Za-z0-9.])(?:{alternatives})(?![A-Za-z0-9])")
    return [(role, pattern.sub(lambda m: mapping[m.group(0)], text)) for role, text in segments]


def shown_values(segments: Sequence[Segment]) -> list[str]:
    """Every value of a labelled fact in the observations, in order, each once."""
    found = (value for role, text in segments if role == ENVIRONMENT for _, value in _FACT.findall(text))
    return list(dict.fromkeys(found))


def scramble(
    segments: Sequence[Segment],
    keep: Collection[str],
    always_rename: Collection[str],
    new_label: Callable[[str], str],
    rng: np.random.Generator,
    rename_share: float,
) -> list[Segment]:
    """Shuffle the facts inside observations and rename labels that are not asked: only matching the asked label finds the
    value. Labels in `always_rename` stay only if they are in `keep`. `new_label` is told the section that the passage is of."""
    out = []
    for role, text in segments:
        facts = _FACT.findall(text) if role == ENVIRONMENT else []
        if facts:
            head = text[: _FACT.search(text).start()]
            section = found[1] if (found := _SECTION.match(text)) else ""
            kept = [label in keep or (label not in always_rename and rng.random() >= rename_share) for label, _ in facts]
            labels = [label if stays else new_label(section) for stays, (label, _) in zip(kept, facts, strict=True)]
            order = rng.permutation(len(facts)) if rename_share else range(len(facts))
            text = head + " ".join(f"{labels[i]}: {facts[i][1]}." for i in order) + "</information>"
        out.append((role, text))
    return out
