"""What a judge is sent: a prompt file as the system message, the material as one JSON document in the user message.

Owns the prompts (`prompts/*.txt`, versioned by the hash of their content) and the form of the material. Invariant: text from
outside appears only inside JSON strings, transcript tags neutralised, so it can neither end its part nor look like a turn.
Edge case: long evidence is cut per passage and by count, never in the middle of the document; a question that is to be answered
keeps all its passages, since the one that is left out may be the one that holds the answer.

Sent to the judge, whoever runs it: question, reference answers, the wrong answer, queries, passages and the cards shown; where
it verifies questions, each with its passages, before anybody has answered it; where it checks answers, each that equals no reference
with its question and the references.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from sesa_core.cards.schema import CATEGORIES
from sesa_core.text.tags import neutralise
from sesa_core.types import Failure, Passage

MAX_PASSAGES = 30
MAX_PASSAGE_CHARS = 2000
MAX_VALUE_CHARS = 1000
_MATERIAL = re.compile(r"^BEGIN MATERIAL$\n(.*?)\n^END MATERIAL$", re.DOTALL | re.MULTILINE)

_TEXT = {"type": "string"}
CARD_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "category": {"type": "string", "enum": ["", *CATEGORIES]},
        "pattern": _TEXT,
        "common_confusion": _TEXT,
        "key_distinction": _TEXT,
        "trigger_keywords": {"type": "array", "items": _TEXT},
        "queries": {"type": "array", "items": _TEXT},
        "no_lesson": _TEXT,
    },
    "required": ["category", "pattern", "common_confusion", "key_distinction", "trigger_keywords", "queries", "no_lesson"],
}
VERDICT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"verdict": {"type": "string", "enum": ["correct", "incorrect"]}},
    "required": ["verdict"],
}
ANSWER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"answer": _TEXT, "no_answer": _TEXT},
    "required": ["answer", "no_answer"],
}
PING_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
}


@cache
def _prompt_file(name: str) -> str:
    return (files("sesa_core.judge") / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def prompt_hash(name: str) -> str:
    """16 hex digits that change whenever the prompt file `prompts/<name>.txt` does."""
    return hashlib.sha256(_prompt_file(name).encode()).hexdigest()[:16]


def system_prompt(name: str) -> str:
    """The text of `prompts/<name>.txt`, ready to send."""
    return _prompt_file(name).replace("$categories", ", ".join(CATEGORIES))


def _value(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    return neutralise(text[:limit])


def _passages(passages: Sequence[Passage]) -> list[dict[str, str]]:
    return [{"title": _value(p.title), "text": _value(p.text, MAX_PASSAGE_CHARS)} for p in passages]


def distil_material(failure: Failure) -> dict[str, object]:
    """What the judge learns of a failure. The newest evidence of the solver is kept when there is too much."""
    return {
        "question": _value(failure.question),
        "reference_answers": [_value(a) for a in failure.reference_answers[:20]],
        "wrong_answer": _value(failure.answer),
        "searches": [_value(q) for q in failure.queries[-MAX_PASSAGES:]],
        "seen": _passages(failure.evidence[-MAX_PASSAGES:]),
        "answer_evidence": _passages(failure.problem_evidence[:MAX_PASSAGES]),
        "cards_that_did_not_help": [_value(c.text) for c in failure.shown_cards],
    }


def verdict_material(question: str, reference_answers: Sequence[str], answer: str) -> dict[str, object]:
    return {"question": _value(question), "reference_answers": [_value(a) for a in reference_answers[:20]], "answer": _value(answer)}


def answer_material(question: str, passages: Sequence[Passage]) -> dict[str, object]:
    return {"question": _value(question), "passages": _passages(passages)}


def is_shown_whole(question: str, passages: Sequence[Passage]) -> bool:
    """Whether `answer_material` cuts nothing off."""
    return len(question) <= MAX_VALUE_CHARS and all(len(p.title) <= MAX_VALUE_CHARS and len(p.text) <= MAX_PASSAGE_CHARS for p in passages)


def messages(prompt: str, material: Mapping[str, object]) -> list[dict[str, str]]:
    """The chat messages for `prompts/<prompt>.txt` about `material`."""
    document = json.dumps(material, ensure_ascii=False, indent=1)
    return [
        {"role": "system", "content": system_prompt(prompt)},
        {"role": "user", "content": f"BEGIN MATERIAL\n{document}\nEND MATERIAL"},
    ]


def find_material(text: str) -> dict | None:
    """The inverse of `messages`: the JSON document in a request's text, None if there is none or it is damaged."""
    found = _MATERIAL.search(text)
    if found is None:
        return None
    try:
        value = json.loads(found[1])
    except (json.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
