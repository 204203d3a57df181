"""Reading a failed search the way a careful person would: passages, titles, labels, kinds of things. Pure functions.

Knows the form of text, not the facts or relations of any world: a title is an entity and perhaps a section; a fact is
`label: value.`; a kind of thing stands before its name ("the element Oxygen") or opens its description ("City in ...").
Edge case: what cannot be told from the text is None or "", never a guess. The one thing brought along is general
knowledge: the names of countries and continents, to call a placeholder by its kind.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sesa_core.judge.gazetteer import CONTINENTS, COUNTRIES
from sesa_core.text.normalize import tokens

_FIELD = re.compile(r"(?:^|(?<=[.;]\s))([A-Za-z][\w '/&-]{0,40}?):\s+(\S.*?)(?=[.;](?:\s|$)|$)")
_LABEL_BEFORE = re.compile(r"(?:^|[.;]\s+|\n)([A-Za-z][\w '/&-]{0,40}?):\s*[\"']?$")
_DESCRIPTION = re.compile(r"^(?:An?\s+)?([A-Z]?[a-z]+) (?:in|of)\b")
_FUNCTION_WORDS = """ a an the of in on at by to for from with and or as is was are were be been that which who whose what when where how
 name named called give its their his her it this these than most into about after before between near """


@lru_cache(maxsize=4096)
def _form(text: str) -> str:
    return f" {' '.join(tokens(text, fold_accents=True))} "


def holds(text: str, name: str) -> bool:
    """Whether the words of `name` stand in `text` as a run (as `text.normalize.contains`, remembered for the many looks)."""
    pin = _form(name)
    return bool(pin.strip()) and pin in _form(text)


def same(left: str, right: str) -> bool:
    """Whether two names have the same words, accents and case aside; nothing is the same as an empty name."""
    return bool(_form(left).strip()) and _form(left) == _form(right)


@dataclass(frozen=True)
class Text:
    """A passage as the judge sees it."""

    title: str
    text: str


@dataclass(frozen=True)
class Case:
    """One failure as the judge is told of it; `seen` is what the agent was shown, `source` where the answer stands."""

    question: str
    references: tuple[str, ...]
    wrong_answer: str
    searches: tuple[str, ...]
    seen: tuple[Text, ...]
    source: tuple[Text, ...]
    cards: tuple[str, ...]

    @cached_property
    def passages(self) -> tuple[Text, ...]:
        return self.seen + self.source

    @cached_property
    def mentions(self) -> tuple[str, ...]:
        """Everything that may name an entity, passage titles apart."""
        return (self.question, *(p.text for p in self.passages))

    @cached_property
    def parts(self) -> dict[str, tuple[str, str]]:
        """Title -> (entity, section), see `split_title`."""
        return {p.title: split_title(p.title, self) for p in self.passages}


def read_case(material: Mapping[str, object]) -> Case | None:
    """The case in a distil request's material; None if a part is missing or of the wrong type."""
    try:
        return Case(
            _text(material["question"]),
            _texts(material["reference_answers"]),
            _text(material["wrong_answer"]),
            _texts(material["searches"]),
            read_passages(material["seen"]),
            read_passages(material["answer_evidence"]),
            _texts(material["cards_that_did_not_help"]),
        )
    except (KeyError, TypeError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(map(_text, value))


def read_passages(value: object) -> tuple[Text, ...]:
    """The passages in a request's material. Raises TypeError or KeyError if it is no list of passages."""
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise TypeError("not a list of passages")
    return tuple(Text(_text(v["title"]), _text(v["text"])) for v in value)


def split_title(title: str, case: Case) -> tuple[str, str]:
    """(entity, section): the entity is the longest beginning of the title that is named elsewhere in the case, else its
    capitalised beginning; the section is what is left, in plain lower-case words. ("", "") if it cannot be told."""
    words = title.split()
    others = {p.title for p in case.passages} - {title}
    for n in range(len(words), 0, -1):
        name = " ".join(words[:n])
        if any(holds(m, name) for m in case.mentions) or any(_form(t).startswith(_form(name)) for t in others):
            return (name, " ".join(words[n:])) if _may_be_section(words[n:]) else ("", "")
    head = max((i + 1 for i, w in enumerate(words) if not w.islower()), default=0)
    return (" ".join(words[:head]), " ".join(words[head:])) if 0 < head < len(words) and _may_be_section(words[head:]) else ("", "")


def _may_be_section(words: Sequence[str]) -> bool:
    """Not more of the name ("and the Grenadines")."""
    return all(w.islower() and f" {w} " not in _FUNCTION_WORDS for w in words)


def fields(text: str) -> list[tuple[str, str]]:
    """The (label, value) pairs of a passage."""
    return [(m[1], m[2]) for m in _FIELD.finditer(text)]


def whole_fields(text: str) -> list[tuple[str, str]]:
    """As `fields`, but only values that are known to be whole: after them the text ends or another label stands, so that the point
    of an abbreviation ("anthem: St. George") ends none."""
    ends = [(m[1], m[2], re.sub(r"^[.;]\s*", "", text[m.end() :])) for m in _FIELD.finditer(text)]
    return [(label, value) for label, value, after in ends if not after or _FIELD.match(after)]


def labels_of(text: str, values: Sequence[str]) -> list[str]:
    """The labels under which one of `values` stands as a whole value in `text`, in order."""
    found = []
    for value in filter(None, values):
        for place in re.finditer(re.escape(value) + r"(?=$|[.;,)\"'\n])", text, re.IGNORECASE):
            label = _LABEL_BEFORE.search(text[: place.start()])
            found += [label[1]] if label else []
    return found


def answer_label(passage: Text, case: Case) -> str | None:
    """The label under which the passage holds a right answer, the one that the question uses if it uses one."""
    labels = labels_of(passage.text, case.references)
    return next((x for x in labels if asked_position(x, case.question) >= 0), labels[0] if labels else None)


def kind_before(name: str, text: str) -> str:
    """The kind word in front of `name` ("the city Cordoba" -> city), "" if there is none."""
    for found in re.finditer(rf"\b([\w-]+)\s+{re.escape(name)}(?!\w| [A-Z])", text):
        if found[1].islower() and f" {found[1]} " not in _FUNCTION_WORDS and not found[1].isdigit():
            return found[1]
    return ""


def kind_of(name: str, case: Case) -> str:
    """What kind of thing `name` is, as one lower-case word; "name" if the case does not tell.

    Things that have the same section are of the same kind, so what is known of one is said of the other.
    """
    sections = {section for entity, section in case.parts.values() if entity == name and section}
    alike = [entity for entity, section in case.parts.values() if section in sections and entity != name]
    return next((kind for n in (name, *alike) if (kind := _own_kind(n, case))), "name")


def _own_kind(name: str, case: Case) -> str:
    in_question = kind_before(name, case.question)
    if in_question:
        return in_question
    for passage in case.passages:
        if passage.title == name and (kind := described_kind(passage.text)):
            return kind
    if name in COUNTRIES or any(re.search(rf"\bin {re.escape(name)}, (?:{'|'.join(sorted(CONTINENTS))})\b", p.text) for p in case.passages):
        return "country"
    return next((kind for p in case.passages if (kind := kind_before(name, p.text))), "")


def described_kind(text: str) -> str:
    """The kind that opens a description ("City in Spain" -> city), "" if none does."""
    described = _DESCRIPTION.match(text)
    return described[1].lower() if described else ""


def qualifier_after(name: str, question: str) -> str:
    """What tells namesakes apart in the question: "Cordoba in Europe" -> Europe; "" if nothing does."""
    found = re.search(rf"\b{re.escape(name)} in ((?:[A-Z][\w'-]*)(?: [A-Z][\w'-]*)*)", question)
    return found[1] if found else ""


def qualifier_kind(qualifier: str) -> str:
    """The placeholder for a qualifier."""
    if qualifier in CONTINENTS:
        return "continent"
    return "country" if qualifier in COUNTRIES else "place"


def spans(text: str) -> list[str]:
    """Capitalised, quoted and numeric spans: what may be the name of something."""
    capital = r"[A-Z][\w'.-]*(?: (?:of |de |da |do |del |la |the |and )?[A-Z][\w'.-]*)*"
    found = re.findall(rf'"([^"]+)"|({capital})|(\d[\d.,:]*\d|\d)', text)
    return [next(g for g in groups if g).strip(" .,") for groups in found]


def entities(case: Case) -> Iterator[str]:
    """Everything that a card must not name: the answers, the names in the question, the entities of the titles."""
    yield from case.references
    opening = tokens(case.question)[:1]
    yield from (s for s in spans(case.question) if tokens(s) != opening)
    yield from (name for p in case.passages if (name := case.parts[p.title][0]))


def asked_position(label: str, question: str) -> int:
    """Where the question says `label` (in tokens), -1 if it does not."""
    words, pin = tokens(question), tokens(label)
    return next((i for i in range(len(words) - len(pin) + 1) if pin and words[i : i + len(pin)] == pin), -1)
