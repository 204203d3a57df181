"""Transcript tags: what they are, how a turn is read, and how outside text is kept from looking like one.

Owns the tag vocabulary. Invariant: text that came from outside (passages, cards, questions) passes through a `Neutraliser`
before it enters a transcript, so only the policy and the environment ever write a tag. Edge case: a tokenizer may fold
full-width look-alikes into ASCII before it looks for its tokens, so they count as what they would become.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from sesa_core.text.calls import bare_call, query_of
from sesa_core.types import Role, Turn, TurnKind

NAMES = ("think", "search", "information", "observation", "answer", "question", "tool_call", "tool_response", "tools")
_GAP = r"[\s\u00ad\u200b-\u200f\u2060\ufeff]*"  # white space, seen or unseen
_TAG = rf"<{_GAP}(?:/{_GAP})?(?:{'|'.join(NAMES)})\b[^<>]*>"
_CHAT_TOKEN = rf"<{_GAP}\|[^<>|]*\|{_GAP}>"
_BRACKETS = str.maketrans("<>\ufe64\ufe65\uff1c\uff1e[]\uff3b\uff3d", "\u2039\u203a\u2039\u203a\u2039\u203a\u2045\u2046\u2045\u2046")
_LOOK_ALIKES = [chr(code) for code in range(0xFE50, 0xFF60)]  # small and full-width forms of ASCII
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class Neutraliser:
    """Makes every transcript tag and chat token in a text harmless, and every one of `tokens` (a tokenizer's special ones).

    `<search>` becomes `‹search›`, `[INST]` becomes `⁅INST⁆`; a token without brackets gets a blank after its first letter.
    """

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        others = {unicodedata.normalize("NFKC", token).strip() for token in tokens}
        others = sorted((token for token in others if len(token) > 1), key=lambda token: (-len(token), token))
        self._harmful = re.compile("|".join([_TAG, _CHAT_TOKEN, *map(re.escape, others)]), re.IGNORECASE)
        first = {"<", *(letter for token in others for letter in (token[0].lower(), token[0].upper()))}
        first |= {form for form in _LOOK_ALIKES if unicodedata.normalize("NFKC", form) in first}
        self._begins = re.compile(f"[{re.escape(''.join(sorted(first)))}]")

    def __call__(self, text: str) -> str:
        while self._begins.search(text):
            spans = self._spans(text)
            if not spans:
                break
            for start, end in reversed(spans):
                text = text[:start] + _harmless(text[start:end]) + text[end:]
        return text

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where in `text` something harmful stands, read as NFKC would fold it."""
        if text.isascii():
            return [match.span() for match in self._harmful.finditer(text)]
        folded = [unicodedata.normalize("NFKC", letter) for letter in text]
        origin = [at for at, letters in enumerate(folded) for _ in letters]
        return [(origin[m.start()], origin[m.end() - 1] + 1) for m in self._harmful.finditer("".join(folded))]


def _harmless(token: str) -> str:
    plain = token.translate(_BRACKETS)
    return plain if plain != token else f"{token[0]} {token[1:]}"


neutralise = Neutraliser()


def one_line(text: str, neutral: Neutraliser = neutralise) -> str:
    """Neutralised, with all white space folded to single blanks."""
    return neutral(" ".join(text.split()))


class CallForm(StrEnum):
    """How a policy may ask for a search."""

    TAG = "search"  # <search>query</search>
    TOOL_CALL = "tool_call"  # <tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>
    JSON = "json"  # {"name": "search", "parameters": {"query": "..."}}


@dataclass(frozen=True)
class TagReader:
    """Reads one assistant turn. `strict`: nothing but one tag pair may stand in it (for policies that never chat).

    `forged` is what only the environment may write.
    """

    role: Role
    strict: bool
    calls: tuple[CallForm, ...] = (CallForm.TAG,)
    forged: tuple[str, ...] = ("<information>", "<observation>", "<tool_response>")

    @property
    def final_kind(self) -> TurnKind:
        return TurnKind.ANSWER if self.role is Role.SOLVER else TurnKind.QUESTION

    @cached_property
    def _pairs(self) -> re.Pattern[str]:
        names = "|".join([*(form for form in self.calls if form is not CallForm.JSON), TurnKind.ANSWER, TurnKind.QUESTION])
        return re.compile(rf"<({names})>(.*?)</\1>", re.DOTALL)

    @cached_property
    def _left_open(self) -> re.Pattern[str]:
        return re.compile(rf"<{self.final_kind}>([^<]*)\Z")

    def read(self, text: str, ended: bool = False) -> Turn:
        """The turn that `text` (what the policy alone wrote) amounts to; the last final tag wins, else the first search.

        `ended`: the policy itself ended its chat turn after it, not the room it had. Where nothing else was written, a final tag that
        it left open is closed with the turn, as small chat models often mean it. A policy that types an <information> tag itself has
        found nothing: such a turn is malformed. So is one whose first tool call cannot be read, whatever calls follow it.
        """
        body = _THINK.sub("", text).strip()
        turn, beside = self._read(body, ended and not self.strict)
        thoughts = [*_THINK.findall(text), beside]
        return replace(turn, thought=" ".join(" ".join(thoughts).split()))

    def _read(self, body: str, may_be_open: bool) -> tuple[Turn, str]:
        """The turn, and what stands beside its tags or its call."""
        malformed = Turn(TurnKind.MALFORMED, body), ""
        if any(mark in body for mark in self.forged):
            return malformed
        pairs = [(m[1], m[2].strip()) for m in self._pairs.finditer(body)]
        if self.strict and (len(pairs) != 1 or not self._pairs.fullmatch(body) or "<" in pairs[0][1]):
            return malformed
        beside = self._pairs.sub(" ", body)
        finals = [value for name, value in pairs if name == self.final_kind]
        if finals:
            return (Turn(self.final_kind, finals[-1], tags=len(finals)), beside) if finals[-1] else malformed
        query, beside = bare_call(beside) if CallForm.JSON in self.calls else (_first_query(pairs), beside)
        if query:
            return Turn(TurnKind.SEARCH, query), beside
        last = self._left_open.search(body) if may_be_open and "<think>" not in body else None
        final = last[1].strip() if last else ""
        return (Turn(self.final_kind, final), body[: last.start()]) if last and final else malformed


def _first_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Of the first tool call or search tag that is not empty; empty if there is none or it cannot be read."""
    for name, value in pairs:
        if name == CallForm.TOOL_CALL:
            return query_of(value)
        if name == CallForm.TAG and value:
            return value
    return ""
