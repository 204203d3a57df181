"""The model behind the built-in judge: it reads the transcript in a request and says which step went wrong. It also compares answers
and, with `answering`, answers from passages. Pure functions.

`answer(text)` parses the request, `diagnose` walks the chain of the question from the entity it names to the answer and
yields the lessons it finds in that order (the first break is the one that mattered), `answer` writes the first one that no
shown card teaches already. Invariant: a card names no entity of the case and rests on words that stand in the request: a
label before a value, a section behind a name, a qualifier in the question. Edge case: where these are missing there is no
general lesson, and the analyst says so instead of inventing one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sesa_core.judge import reading
from sesa_core.judge.answering import answer_from
from sesa_core.judge.compose import find_material
from sesa_core.judge.reading import Case, Text
from sesa_core.text.normalize import matches, tokens

_TASK = re.compile(r"^Task: (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class AnalystReply:
    """`text` is the message's content, `refusal` says why there is none; exactly one is set."""

    text: str | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class Lesson:
    """A card in the making. `keyword` is a word of the question, `query` a template with placeholders."""

    category: str
    keyword: str
    query: str
    pattern: str
    confusion: str
    distinction: str
    more_keywords: tuple[str, ...] = ()

    def card(self) -> dict[str, object]:
        return {
            "category": self.category,
            "pattern": self.pattern,
            "common_confusion": self.confusion,
            "key_distinction": self.distinction,
            "trigger_keywords": list(dict.fromkeys((self.keyword, *self.more_keywords))),
            "queries": [self.query],
            "no_lesson": "",
        }

    @property
    def words(self) -> str:
        return " ".join((self.pattern, self.confusion, self.distinction, self.query, self.keyword, *self.more_keywords))


def answer(text: str) -> AnalystReply:
    """The reply to a request's whole text."""
    task = _TASK.search(text)
    match task[1] if task else "":
        case "ping":
            return AnalystReply(json.dumps({"ready": True}))
        case "verdict":
            return _verdict(find_material(text))
        case "distil":
            return _distil(find_material(text))
        case "answer":
            return _answer(find_material(text))
    return AnalystReply(refusal="This analyst distils failed searches, compares answers, and answers from passages: this asks for none.")


def _verdict(material: dict | None) -> AnalystReply:
    material = material or {}
    given, references = material.get("answer"), material.get("reference_answers")
    if not isinstance(given, str) or not isinstance(references, list):
        return AnalystReply(refusal="The request holds no answer and references to compare.")
    same = any(equivalent(given, r) for r in references if isinstance(r, str))
    return AnalystReply(json.dumps({"verdict": "correct" if same else "incorrect"}))


def _answer(material: dict | None) -> AnalystReply:
    material = material or {}
    question = material.get("question")
    try:
        passages = reading.read_passages(material.get("passages"))
    except (KeyError, TypeError):
        passages = None
    if not isinstance(question, str) or passages is None:
        return AnalystReply(refusal="The request holds no question and passages that can be read.")
    found = answer_from(question, passages)
    return AnalystReply(json.dumps({"answer": found.answer or "", "no_answer": found.reason}, ensure_ascii=False))


def equivalent(given: str, reference: str) -> bool:
    """Equal after normalisation, accents aside, or the reference with at most three words of detail around it."""
    if matches(given, [reference]):
        return True
    words = set(tokens(given))
    extra = len(tokens(given)) - len(tokens(reference))
    return reading.holds(given, reference) and 0 <= extra <= 3 and not words & {"or", "not", "nor", "maybe", "either"}


def _distil(material: dict | None) -> AnalystReply:
    case = reading.read_case(material or {})
    if case is None:
        return AnalystReply(refusal="The request holds no failure that can be read.")
    reason = "no label before the answer, no section and no qualifier could be found in what was sent"
    forbidden = list(dict.fromkeys(reading.entities(case)))
    for lesson in diagnose(case):
        named = next((e for e in forbidden if reading.holds(lesson.words, e)), None)
        if named is not None:
            reason = "the lesson cannot be said without a name or value of this very question"
        elif any(reading.holds(card, lesson.keyword) and lesson.query in card for card in case.cards):
            reason = "a card that was shown already teaches this search"
        else:
            return AnalystReply(json.dumps(lesson.card(), ensure_ascii=False))
    return AnalystReply(json.dumps({"no_lesson": reason}))


def diagnose(case: Case) -> Iterator[Lesson]:
    """What went wrong, in the order of the question's chain."""
    yield from _namesakes(case)
    yield from _unopened_entities(case)
    yield from _missed_links(case)
    yield from _last_hop(case)


def _opened(passage: Text, case: Case) -> bool:
    return passage in case.seen


def _followed(passage: Text, case: Case) -> bool:
    """Whether the agent went on with a name that this passage gave."""
    later = (*case.searches, case.wrong_answer)
    return any(reading.holds(text, name) for name in reading.spans(passage.text)[1:] for text in later)


def _namesakes(case: Case) -> Iterator[Lesson]:
    """The question says which of several namesakes is meant, and the agent went on with another."""
    for wrong in case.seen:
        name, section = case.parts[wrong.title]
        qualifier = reading.qualifier_after(name, case.question) if name and not section else ""
        kind = reading.kind_before(name, case.question)
        if not qualifier or not kind or reading.holds(wrong.text, qualifier):
            continue
        right = [p for p in case.seen if p.title == wrong.title and reading.holds(p.text, qualifier)]
        asked = any(reading.holds(q, name) and reading.holds(q, qualifier) for q in case.searches)
        if asked or (right and (not _followed(wrong, case) or any(_followed(p, case) for p in right))):
            continue
        which = reading.qualifier_kind(qualifier)
        yield Lesson(
            "entity_disambiguation",
            kind,
            f"{{{kind}}} {{{which}}}",
            f"The question names a {kind} and says in which {which} it lies.",
            f"Several places share the {kind}'s name; searched alone, the name brings up a namesake from another {which}.",
            f"Search the {kind} together with its {which}, and go on only with the passage that mentions that {which}.",
            (which,),
        )
        return


def _unopened_entities(case: Case) -> Iterator[Lesson]:
    """An entity that the question names has what is needed in a section of its own, and that section was never opened."""
    for passage in case.source:
        name, section = case.parts[passage.title]
        kind = reading.kind_before(name, case.question) if name else ""
        if not kind or not section or _opened(passage, case) or reading.answer_label(passage, case):
            continue
        others = _other_sections(name, section, case)
        stayed = f"its {_listed(others)} passage does not say it" if others else "its name alone does not bring it up"
        yield Lesson(
            "attribute_lookup",
            kind,
            f"{{{kind}}} {section}",
            f"The question starts from the {kind} it names and needs where that {kind} belongs.",
            f"What links the {kind} to the rest stands in a section of its own: {stayed}.",
            f"Search the {kind}'s name with the word {section}; that passage holds the link to the next step.",
            tuple(re.findall(rf"\b([a-z]+ of the {re.escape(kind)})\b", case.question)[:1]),
        )


def _missed_links(case: Case) -> Iterator[Lesson]:
    """A passage between the first entity and the answer was never opened: the chain was cut short or a link skipped."""
    goals = {name for p in case.source if reading.answer_label(p, case) and (name := case.parts[p.title][0])}
    found = []
    for passage in case.source:
        name, section = case.parts[passage.title]
        if not name or _opened(passage, case):
            continue
        for label, value in reading.fields(passage.text):
            position = reading.asked_position(label, case.question)
            if position >= 0 and value in goals and value != name:
                found.append((-position, label, name, section))
    for _, label, name, section in sorted(found):
        kind = reading.kind_of(name, case)
        yield Lesson(
            "multi_hop_chain",
            label,
            _template(kind, section),
            f"The question goes over the {label} of a {_noun(kind)}.",
            f"The {label} was skipped: the search stayed with the first {_noun(kind)} and answered about it.",
            f"The {label} is a step of its own: {_open(kind, section)}, read what follows '{label}:', and continue from there.",
        )


def _last_hop(case: Case) -> Iterator[Lesson]:
    """The passage that holds the answer: never opened, or opened and misread."""
    for passage in sorted(dict.fromkeys(case.source + case.seen), key=lambda p: _remoteness(p, case)):
        label = reading.answer_label(passage, case)
        name, section = case.parts[passage.title]
        if not label or not name:
            continue
        asked = reading.asked_position(label, case.question) >= 0
        keyword = label if asked else _asked_relation(case.question)
        if not keyword or not (asked or passage in case.source):
            continue  # a value met by chance, under a label that nobody asked for
        kind = reading.kind_of(name, case)
        if kind == "name" and not section:
            continue  # "search the name" teaches nothing
        category, confusion = _what_happened(passage, keyword, label, case)
        yield Lesson(
            category,
            keyword,
            _template(kind, section),
            f"The question asks for the {keyword} of a {_noun(kind)}.",
            confusion,
            f"For the {keyword}, {_open(kind, section)} and read what follows '{label}:'.",
            (label,),
        )


def _remoteness(passage: Text, case: Case) -> tuple[bool, bool, int]:
    """Lowest for a passage with the answer under a label that the question uses, about something that the agent came near
    and that other passages are about too: the same value may stand under the same label elsewhere."""
    label = reading.answer_label(passage, case) or ""
    name = case.parts[passage.title][0]
    near = (case.question, case.wrong_answer, *(t for p in case.seen if p != passage for t in (p.title, p.text)))
    about = sum(reading.holds(t, name) for p in case.passages for t in (p.title, p.text)) if name else 0
    return reading.asked_position(label, case.question) < 0, not any(reading.holds(t, name) for t in near), -about


def _what_happened(passage: Text, keyword: str, label: str, case: Case) -> tuple[str, str]:
    """(category, common confusion) of a last hop that failed."""
    name, section = case.parts[passage.title]
    noun = _noun(reading.kind_of(name, case))
    if _opened(passage, case):
        if reading.holds(passage.text, case.wrong_answer):
            return "evidence_check", f"The right passage was open, but another of its lines was given as the {keyword}."
        return "evidence_check", f"The passage with the {keyword} was open, but the answer was taken from somewhere else."
    others = _other_sections(name, section, case)
    if others:
        return "attribute_lookup", f"The {keyword} is looked for under {_listed(others)}, which does not list it."
    if any(label in reading.labels_of(p.text, [case.wrong_answer]) for p in case.seen):
        return "multi_hop_chain", f"The {keyword} of another {noun} on the way is given; one step of the question was left out."
    searched = any(reading.holds(q, name) for q in case.searches)
    if not searched and not reading.holds(case.question, name):
        return "multi_hop_chain", f"The search stops on the way to the {noun}, and what was seen last is given as the {keyword}."
    return "attribute_lookup", f"The {keyword} is guessed before the {noun}'s own passage on it is open."


def _other_sections(name: str, section: str, case: Case) -> list[str]:
    """Sections of the same entity that were shown instead, in order."""
    parts = (case.parts[p.title] for p in case.seen)
    return list(dict.fromkeys(s for n, s in parts if n == name and s and s != section))


def _asked_relation(question: str) -> str:
    """The relation a question asks for, in its own words: "What is the national song of ..." -> national song."""
    found = re.search(r"\bthe ([a-z][a-z -]{2,40}?) of\b", question)
    return found[1] if found else ""


def _template(kind: str, section: str) -> str:
    return f"{{{kind}}} {section}".strip()


def _noun(kind: str) -> str:
    return "thing" if kind == "name" else kind


def _open(kind: str, section: str) -> str:
    return f"search the {_noun(kind)}'s name " + (f"with the word {section}" if section else "alone")


def _listed(words: list[str]) -> str:
    return " or ".join(words[:3])
