"""Transcript tags: what they are, how a turn is read, and how outside text is kept from looking like one.

Owns the tag vocabulary. Invariant: text that came from outside (passages, cards, questions) passes through `neutralise`
before it enters a transcript, so only the policy and the environment ever write a tag.
"""

import re
from dataclasses import dataclass, replace

from sesa_core.types import Role, Turn, TurnKind

NAMES = ("think", "search", "information", "observation", "answer", "question", "tool_call", "tool_response")
_ANY_TAG = re.compile(r"<(\s*/?\s*(?:" + "|".join(NAMES) + r")\b[^<>]*)>", re.IGNORECASE)
_CHAT_TOKEN = re.compile(r"<\|([^<>|]*)\|>")
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_PAIR = re.compile(r"<(search|answer|question)>(.*?)</\1>", re.DOTALL)


def neutralise(text: str) -> str:
    """The same text with every transcript tag and chat token made harmless: `<search>` becomes `‹search›`."""
    return _CHAT_TOKEN.sub(r"‹\1›", _ANY_TAG.sub(r"‹\1›", text))


def one_line(text: str) -> str:
    """Neutralised, with all white space folded to single blanks."""
    return " ".join(neutralise(text).split())


@dataclass(frozen=True)
class TagReader:
    """Reads one assistant turn. `strict`: nothing but one tag pair may stand in it (for policies that never chat)."""

    role: Role
    strict: bool

    @property
    def final_kind(self) -> TurnKind:
        return TurnKind.ANSWER if self.role is Role.SOLVER else TurnKind.QUESTION

    def read(self, text: str) -> Turn:
        """The turn that `text` (what the policy alone wrote) amounts to; the last final tag wins, else the first search.

        A policy that types an <information> tag itself has found nothing: such a turn is malformed.
        """
        body = _THINK.sub("", text).strip()
        turn = self._read(body)
        beside = [] if turn.kind is TurnKind.MALFORMED else [_PAIR.sub(" ", body)]
        thoughts = [*_THINK.findall(text), *beside]
        return replace(turn, thought=" ".join(" ".join(thoughts).split()))

    def _read(self, body: str) -> Turn:
        if "<information>" in body or "<observation>" in body:
            return Turn(TurnKind.MALFORMED, body)
        pairs = [(m[1], m[2].strip()) for m in _PAIR.finditer(body)]
        if self.strict and (len(pairs) != 1 or not re.fullmatch(_PAIR, body) or "<" in pairs[0][1]):
            return Turn(TurnKind.MALFORMED, body)
        finals = [value for name, value in pairs if name == self.final_kind]
        if finals:
            return Turn(self.final_kind, finals[-1], tags=len(finals)) if finals[-1] else Turn(TurnKind.MALFORMED, body)
        query = next((value for name, value in pairs if name == TurnKind.SEARCH and value), None)
        return Turn(TurnKind.SEARCH, query) if query else Turn(TurnKind.MALFORMED, body)
