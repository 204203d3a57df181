"""Reading what a judge sent back. Pure: text or decoded JSON in, (state, value, reason) out.

Invariant: every text gets a state, and every state but `ok` a reason; a card is returned only if it meets the limits of the
card schema, and a score or an answer only if the reply states one. Edge case: a reply that broke off is `truncated` by its
finish reason and is never read for a card, even if it could be completed.

Read in this order: JSON alone, fenced JSON, JSON inside prose, then the line format (`PATTERN: ...`, `ANSWER: ...`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sesa_core.cards.schema import CATEGORIES, Keyword, Query, Sentence
from sesa_core.judge.base import CardDraft, Distillation, ReplyState

T = TypeVar("T")
MAX_REPLY_CHARS = 100_000
_MAX_OBJECTS = 50
_MAX_REASON_CHARS = 300
_MAX_TOKENS = 10**12  # a count above is nonsense, and would be too large for a float
_THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def _lines_with(names: str) -> re.Pattern[str]:
    """Finds `NAME: value` lines, in time linear in the text: no two repetitions in a row can take the same character."""
    return re.compile(rf"^(?:[^\S\n]|[>*#-])*({names})\**[^\S\n]*:\**[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)


_LINE = _lines_with("CATEGORY|PATTERN|COMMON[_ ]CONFUSION|KEY[_ ]DISTINCTION|TRIGGER[_ ]KEYWORDS|QUERIES|NO[_ ]LESSON")
_ANSWER_LINE = _lines_with("NO[_ ]ANSWER|ANSWER")
_STATED = re.compile(
    r"\b(?P<about>verdict|score|judge?ment|correct|equivalent|answer)\s*(?:is\b\s*)?[:=]\s*(?P<said>[^\n]*)", re.IGNORECASE
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_REFUSAL = re.compile(
    r"\A\W*(i['’]?m (sorry|unable|not able)|i am (sorry|unable|not able)|i (can['’]?t|cannot|can not|won['’]?t)|sorry\b)", re.IGNORECASE
)
_MARKS = " \t\r\n*_`\"'"
_RIGHT, _WRONG = (
    {"correct", "yes", "true", "right", "equivalent", "1"},
    {"incorrect", "no", "false", "wrong", "0", "not equivalent", "not correct"},
)


class ParsedCard(NamedTuple):
    state: ReplyState
    draft: CardDraft | None
    reason: str


class ParsedVerdict(NamedTuple):
    state: ReplyState
    score: float | None
    reason: str


class ParsedAnswer(NamedTuple):
    state: ReplyState
    answer: str | None
    reason: str


@dataclass(frozen=True)
class Envelope:
    """What a chat completion carried around its text. `state` is None if the text is there to be read."""

    text: str
    state: ReplyState | None
    reason: str
    prompt_tokens: int
    completion_tokens: int


class _Draft(BaseModel):
    """The limits of a card's content, for one reply."""

    model_config = ConfigDict(strict=True)
    pattern: Sentence
    common_confusion: Sentence
    key_distinction: Sentence
    trigger_keywords: list[Keyword]
    queries: list[Query]


def open_envelope(body: Mapping) -> Envelope:
    """Read a decoded chat completion, whatever its fields hold."""
    usage = body.get("usage") if isinstance(body.get("usage"), Mapping) else {}
    tokens = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        return Envelope("", ReplyState.EMPTY, "the completion holds no choice with a message", *tokens)
    text, refusal = _message_text(message.get("content")), _message_text(message.get("refusal"))
    finish = choice.get("finish_reason")
    if finish == "content_filter":
        return Envelope(text, ReplyState.FILTERED, "the server's content filter stopped the reply", *tokens)
    if finish == "length":
        return Envelope(text, ReplyState.TRUNCATED, f"the reply was cut after {tokens[1]} tokens", *tokens)
    if refusal.strip():
        return Envelope(text or refusal, ReplyState.REFUSED, _reason(refusal), *tokens)
    if not text.strip():
        return Envelope(text, ReplyState.EMPTY, "the reply holds no text", *tokens)
    return Envelope(text, None, "", *tokens)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS else 0


def _message_text(content: object) -> str:
    """A message's text: a string, or the text parts of a list; half a surrogate pair, which no table can hold, becomes "?"."""
    parts = content if isinstance(content, list) else [{"text": content}]
    text = "".join(p["text"] for p in parts if isinstance(p, Mapping) and isinstance(p.get("text"), str))
    return text.encode(errors="replace").decode()


def read(envelope: Envelope, parse: Callable[[str], tuple[ReplyState, T | None, str]]) -> tuple[ReplyState, T | None, str]:
    """(state, value, reason) of a reply: what came around its text decides, else what `parse` finds in it."""
    return parse(envelope.text) if envelope.state is None else (envelope.state, None, envelope.reason)


def read_again(stored: Distillation) -> ParsedCard:
    """What this reader makes of a reply that is stored.

    What came around its text is not stored. So a reply that was cut, filtered or empty stays what it was, and a refusal stands
    unless its text holds a card: it may have come in a field of its own.
    """
    known, now = ParsedCard(stored.state, stored.draft, stored.reason), parse_card(stored.reply)
    if stored.state in (ReplyState.TRUNCATED, ReplyState.FILTERED) or not stored.reply.strip():
        return known
    return known if stored.state is ReplyState.REFUSED and now.state is not ReplyState.OK else now


def parse_card(text: str) -> ParsedCard:
    """The card in a reply; `ok` without one if the judge says that there is no general lesson.

    Lists longer than the card's limit keep their first entries; any other misfit is `unparsable`.
    """
    text = _THINK.sub("", text)
    if not text.strip():
        return ParsedCard(ReplyState.EMPTY, None, "the reply holds no text")
    if len(text) > MAX_REPLY_CHARS:
        return ParsedCard(ReplyState.UNPARSABLE, None, f"the reply has {len(text)} characters, at most {MAX_REPLY_CHARS} are read")
    fields = next((f for o in _objects(text) if (f := _fields_with(o, ("pattern", "no_lesson")))), None) or _line_fields(text)
    if fields is None:
        if _REFUSAL.match(text):
            return ParsedCard(ReplyState.REFUSED, None, _reason(text))
        return ParsedCard(ReplyState.UNPARSABLE, None, "neither a JSON object with the card's fields nor its line format")
    no_lesson = fields.get("no_lesson")
    if isinstance(no_lesson, str) and no_lesson.strip():
        return ParsedCard(ReplyState.OK, None, _reason(no_lesson))
    return _draft(fields)


def _objects(text: str) -> Iterator[object]:
    """JSON objects in the text, outermost first, in order."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_MAX_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # not only JSONDecodeError: an integer may have too many digits
            at += 1
            continue
        yield value
        at = end


def _fields_with(value: object, names: tuple[str, str]) -> dict | None:
    """The object that has one of the fields: the value itself, or the only object inside it."""
    if not isinstance(value, dict):
        return None
    lowered = {str(k).strip().lower().replace(" ", "_").replace("-", "_"): v for k, v in value.items()}
    if any(name in lowered for name in names):
        return lowered
    inner = [v for v in value.values() if isinstance(v, dict)]
    return _fields_with(inner[0], names) if len(inner) == 1 and len(value) == 1 else None


def _line_fields(text: str) -> dict | None:
    """Fields of the line format. A value may run over several lines, up to the next field or an empty line."""
    heads = list(_LINE.finditer(text))
    fields: dict[str, object] = {}
    for i, head in enumerate(heads):
        name = head[1].lower().replace(" ", "_")
        following = text[head.end() : heads[i + 1].start() if i + 1 < len(heads) else len(text)]
        block = [head[2], *following.split("\n\n", 1)[0].splitlines()]
        rows = [r.strip().lstrip("-*•").strip() for r in block if r.strip() and not r.strip().startswith("```")]
        if name == "trigger_keywords":
            fields.setdefault(name, [k for r in rows for k in re.split(r"[,;]", r)])
        elif name == "queries":
            fields.setdefault(name, [q for r in rows for q in re.split(r"[;|]", r)])
        else:
            fields.setdefault(name, " ".join(rows))
    return fields if "pattern" in fields or "no_lesson" in fields else None


def _draft(fields: Mapping[str, object]) -> ParsedCard:
    category = fields.get("category")
    known = category.strip().lower().replace(" ", "_").replace("-", "_") if isinstance(category, str) else ""
    if known not in CATEGORIES:
        return ParsedCard(ReplyState.UNPARSABLE, None, f"category: {str(category)[:60]!r} is not one of {', '.join(CATEGORIES)}")
    texts = {n: _tidy(fields.get(n)) for n in ("pattern", "common_confusion", "key_distinction")}
    lists = {n: _tidy_list(fields.get(n), most) for n, most in (("trigger_keywords", 8), ("queries", 3))}
    empty = next((n for n, v in lists.items() if v == []), None)
    if empty:
        return ParsedCard(ReplyState.UNPARSABLE, None, f"{empty}: at least one is needed")
    try:
        draft = _Draft.model_validate(texts | lists)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return ParsedCard(ReplyState.UNPARSABLE, None, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    card = CardDraft(
        known, draft.pattern, draft.common_confusion, draft.key_distinction, tuple(draft.trigger_keywords), tuple(draft.queries)
    )
    return ParsedCard(ReplyState.OK, card, "")


def _line(text: str) -> str:
    return " ".join(text.split())


def _reason(text: str) -> str:
    """What the judge says, as one line that can be stored and printed."""
    return _UNPRINTABLE.sub("\ufffd", _line(text)[:_MAX_REASON_CHARS])


def _tidy(value: object) -> object:
    """One line, without the quotes around it; what is not a string stays and is refused by the schema."""
    if not isinstance(value, str):
        return value
    line = _line(value)
    return line[1:-1].strip() if len(line) > 1 and line[0] == line[-1] and line[0] in "\"'`" else line


def _tidy_list(value: object, most: int) -> object:
    """Distinct entries in order, at most `most`; a single string counts as a list of one."""
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list):
        return value
    distinct: dict[object, object] = {}
    for entry in map(_tidy, entries):
        if entry != "":
            distinct.setdefault(entry.casefold() if isinstance(entry, str) else repr(entry), entry)
    return list(distinct.values())[:most]


def parse_answer(text: str) -> ParsedAnswer:
    """The answer in a reply; `refused` if the judge says that the passages support none, with what it gives as the reason.

    What is not clear is `unparsable`, words that decline to reply are `filtered`: neither says anything about the passages.
    """
    text = _THINK.sub("", text)
    if not text.strip():
        return ParsedAnswer(ReplyState.EMPTY, None, "the reply holds no text")
    if len(text) > MAX_REPLY_CHARS:
        return ParsedAnswer(ReplyState.UNPARSABLE, None, f"the reply has {len(text)} characters, at most {MAX_REPLY_CHARS} are read")
    objects = [f for o in _objects(text) if (f := _fields_with(o, ("answer", "no_answer")))]
    lines = [{m[1].lower().replace(" ", "_"): m[2]} for m in _ANSWER_LINE.finditer(text)]
    if not objects and not lines and _REFUSAL.match(text):
        return ParsedAnswer(ReplyState.FILTERED, None, _reason(text))
    stated = {s for s in map(_stated_answer, objects or lines) if s is not None}
    if len(stated) != 1:
        trouble = "the reply states several answers" if stated else "neither an answer nor a reason why there is none"
        return ParsedAnswer(ReplyState.UNPARSABLE, None, trouble)
    return stated.pop()


def _stated_answer(fields: Mapping[str, object]) -> ParsedAnswer | None:
    """What one object or line says: an answer, or why there is none; None if that is neither or both."""
    answer, why_none = (_words(fields.get(name)) for name in ("answer", "no_answer"))
    if bool(answer) == bool(why_none):
        return None
    return ParsedAnswer(ReplyState.OK, answer, "") if answer else ParsedAnswer(ReplyState.REFUSED, None, _reason(why_none))


def _words(value: object) -> str:
    """A text on one line, a whole number in digits; nothing else is taken for words (3.50 would come back as 3.5)."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", str(_tidy(value)))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def parse_verdict(text: str) -> ParsedVerdict:
    """The score in a reply: a JSON object with `score` or `verdict`, or one plain word. Never 0 for what is not understood."""
    text = _THINK.sub("", text)
    if not text.strip():
        return ParsedVerdict(ReplyState.EMPTY, None, "the reply holds no text")
    if len(text) > MAX_REPLY_CHARS:  # not cut: 0.25 must not become 0.2
        return ParsedVerdict(ReplyState.UNPARSABLE, None, f"the reply has {len(text)} characters, at most {MAX_REPLY_CHARS} are read")
    candidates = [v for o in _objects(text) if isinstance(o, dict) for v in _verdict_values(o)]
    scores = {s for s in map(_score, candidates) if s is not None}
    if not candidates and "{" not in text:
        scores = {s for s in map(_score, _statements(text)) if s is not None}
    if len(scores) != 1:
        return ParsedVerdict(ReplyState.UNPARSABLE, None, "no verdict in the reply" if not scores else "the reply states several verdicts")
    return ParsedVerdict(ReplyState.OK, scores.pop(), "")


def _verdict_values(value: Mapping) -> list[object]:
    lowered = {str(k).lower(): v for k, v in value.items()}
    return [lowered[k] for k in ("score", "verdict", "correct", "equivalent") if k in lowered]


def _statements(text: str) -> list[str]:
    """What a plain reply says: what follows each `verdict:`, `score:` and the like, else each `answer:`, else the whole of it.

    An answer counts only where there is no verdict beside it: judges also repeat the answer that they were asked about.
    """
    marked = [(m["about"].lower() == "answer", m["said"]) for m in _STATED.finditer(text)]
    verdicts = [said for is_answer, said in marked if not is_answer]
    return verdicts or [said for _, said in marked] or [text]


def _score(value: object) -> float | None:
    """0.0 to 1.0, or None if `value` says nothing clear."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value) if 0 <= value <= 1 else None
    if not isinstance(value, str):
        return None
    word = value.strip(_MARKS).rstrip(".!").rstrip(_MARKS).lower()  # the point of ".1" stays
    if word in _RIGHT or word in _WRONG:
        return 1.0 if word in _RIGHT else 0.0
    if re.fullmatch(r"0?\.\d+|[01](?:\.\d*)?", word):
        return float(word) if float(word) <= 1 else None
    opening = re.match(r"(incorrect|correct|wrong|right|yes|no)\s*[.,:;!\n]", word)
    hedged = re.search(r"\b(but|however|although|partly|partially)\b", word)
    return None if opening is None or hedged else float(opening[1] in _RIGHT)
