"""Answering a question from passages and nothing else, as the built-in analyst does it. Pure functions.

`answer_from` follows the question's chain from what it names: "the anthem of the export partner of Spain" is the anthem of what
some passage calls Spain's export partner. Invariant: each step stands in a passage. Edge case: a step that no passage tells, or
that passages tell in two ways, and a question of another form, end without an answer and with the reason, never with a guess.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sesa_core.judge.gazetteer import CONTINENTS, COUNTRIES
from sesa_core.judge.reading import Case, Text, described_kind, fields, holds, same, whole_fields

_ASKED = re.compile(r"\s*(?:(?:what|who|which) (?:is|are|was|were)|name|give|state) (the .+?)[\s?.]*", re.IGNORECASE | re.DOTALL)
_STEP = re.compile(r"the ([a-z][a-z'/& -]*?) of (.+)", re.DOTALL)
_KIND = re.compile(r"the ([a-z]+) (.+)", re.DOTALL)
_STATEMENT_END = re.compile(r"[.;](?:\s+|$)")
_KNOWN_NAMES = {"country": COUNTRIES, "continent": CONTINENTS}
_NAMED = {
    word: re.compile(rf"\b({'|'.join(sorted(map(re.escape, names), key=len, reverse=True))})\b") for word, names in _KNOWN_NAMES.items()
}


class Found(NamedTuple):
    """An answer, or the reason why there is none."""

    answer: str | None
    reason: str


@dataclass(frozen=True)
class Subject:
    """What a step starts from. `label` is how the question writes it, with a qualifier ("Cordoba in Europe") if it needs one."""

    label: str
    kind: str = ""

    @property
    def readings(self) -> list[tuple[str, str]]:
        """(name, qualifier): the label may be a name that holds the word "in"."""
        name, _, qualifier = self.label.rpartition(" in ")
        return [(self.label, ""), *([(name, qualifier)] if name else [])]

    def __str__(self) -> str:
        return f"the {self.kind} {self.label}" if self.kind else self.label


def answer_from(question: str, passages: Sequence[Text]) -> Found:
    """What these passages alone answer."""
    asked = _ASKED.fullmatch(question)
    rest, steps = asked[1] if asked else "", []
    while found := _STEP.fullmatch(rest):
        steps.append(found[1])
        rest = found[2]
    if not steps:
        return Found(None, 'the question has another form than "What is the ... of ...?"')
    kind = _KIND.fullmatch(rest)
    subject = Subject(kind[2], kind[1]) if kind else Subject(rest)
    case = Case(question, (), "", (), tuple(passages), (), ())
    for step in reversed(steps):
        values: list[str] = []
        for value in _values(step, subject, case):
            values += [] if any(same(value, v) for v in values) else [value]
        if len(values) != 1:
            trouble = "the passages differ about" if values else "no passage tells"
            return Found(None, f"{trouble} the {step} of {subject}")
        subject = Subject(values[0])
    return Found(subject.label, "")


def _values(step: str, subject: Subject, case: Case) -> Iterator[str]:
    """Every value that some passage gives for "the `step` of `subject`", in order."""
    for passage in case.passages:
        entity = case.parts[passage.title][0]
        if _is_about(passage, entity, subject):
            yield from (value for label, value in whole_fields(passage.text) if same(label, step))
            yield from _placed_in(step, passage, subject)
        elif entity:
            yield from _said_elsewhere(step, passage, entity, subject)


def _is_about(passage: Text, entity: str, subject: Subject) -> bool:
    """Whether a passage is about the subject: it has its name, holds its qualifier, and is not about a thing of another kind."""
    kind = described_kind(passage.text) if same(passage.title, entity) else ""
    if subject.kind and kind and kind != subject.kind:
        return False
    return any(same(entity, name) and (not qualifier or holds(passage.text, qualifier)) for name, qualifier in subject.readings)


def _placed_in(step: str, passage: Text, subject: Subject) -> Iterator[str]:
    """Where a passage in sentences says that the subject lies: "City in Spain, Europe." """
    if step in _NAMED and not fields(passage.text) and not any(same(subject.label, name) for name in _KNOWN_NAMES[step]):
        yield from _NAMED[step].findall(passage.text)


def _said_elsewhere(step: str, passage: Text, entity: str, subject: Subject) -> Iterator[str]:
    """What a passage about something else says: that this is the subject's ("export partner of Spain"), or lists the subject."""
    listed = f"{subject.kind} {subject.label}" if step in _KNOWN_NAMES and entity in _KNOWN_NAMES[step] and subject.kind else ""
    for statement in _STATEMENT_END.split(passage.text):
        if same(statement, f"{step} of {subject.label}") or same(statement, listed):
            yield entity
