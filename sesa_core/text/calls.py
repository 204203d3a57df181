"""Searches that a policy asks for as a tool call in JSON. Pure.

Invariant: whatever a policy writes, the answer is a query or the empty string, never an error. Edge cases: arguments may be
an object or a string that holds one, under either family's name; nesting too deep to be parsed is simply not a call.
"""

import json
import re
from typing import Any

_PYTHON_TAG = "<|python_tag|>"
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can name half of a surrogate pair, which no text can hold
_DECODER = json.JSONDecoder()


def query_of(text: str) -> str:
    """The query of a call `{"name": "search", "arguments": {"query": "..."}}`; empty if `text` is no such call."""
    try:
        return _query(_DECODER.decode(text.strip()))
    except (ValueError, RecursionError):
        return ""


def bare_call(text: str) -> tuple[str, str]:
    """The query of the first JSON object in `text`, and the rest of the text; ("", text) if it is no search."""
    start = text.find("{")
    if start < 0:
        return "", text
    try:
        call, end = _DECODER.raw_decode(text, start)
        query = _query(call)
    except (ValueError, RecursionError):
        return "", text
    return query, (text[:start] + " " + text[end:]).replace(_PYTHON_TAG, " ")


def _query(call: Any) -> str:
    if not isinstance(call, dict) or call.get("name") != "search":
        return ""
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        arguments = _DECODER.decode(arguments)
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return _HALF_PAIR.sub("\ufffd", query).strip() if isinstance(query, str) else ""
