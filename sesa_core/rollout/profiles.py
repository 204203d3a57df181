"""Families of policies: the prompts they are given, how they search, and how the environment writes back.

Owns the texts and the wire format of each family. Invariant: a profile names a chat token only where the family's own chat
template writes it. Edge case: a family whose chat turn must be closed before the environment speaks says with which token;
it is written for the policy only if the policy did not write it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sesa_core.text.tags import CallForm, TagReader
from sesa_core.types import Role

PROMPTS = Path(__file__).parent / "prompts"
FINALS = ("</answer>", "</question>")
_CHAT_TOKEN = re.compile(r"<\|[^<>|]*\|>")


@dataclass(frozen=True)
class Profile:
    """One family.

    `solver`, `proposer`, `verify` are what the user message says, `system` what stands before the cards in the system message
    of a game with searches. `call` is how the policy writes a search, with `{query}` in it, `reply` what the environment writes
    after it, with `{passages}` in it; `results` is the tag that holds them. A turn ends with one of `ends`; `closing` are the chat
    tokens that close it, of which the environment writes the first if the policy wrote none. `strict`: a turn is exactly one tag
    pair.
    """

    name: str
    solver: str
    proposer: str
    verify: str
    reply: str
    ends: tuple[str, ...]
    call: str = "<search>{query}</search>"
    system: str = ""
    results: str = "information"
    closing: tuple[str, ...] = ()
    calls: tuple[CallForm, ...] = (CallForm.TAG,)
    forged: tuple[str, ...] = TagReader.forged
    strict: bool = False
    number_passages: bool = True

    @property
    def chat_tokens(self) -> tuple[str, ...]:
        """What the environment writes and the tokenizer must know as one token each, in the order in which it is written."""
        return tuple(dict.fromkeys([*self.closing[:1], *_CHAT_TOKEN.findall(self.reply)]))

    def reader(self, role: Role) -> TagReader:
        return TagReader(role, self.strict, self.calls, self.forged)


def _text(name: str) -> str:
    return (PROMPTS / f"{name}.txt").read_text().strip()


def _tiny() -> Profile:
    return Profile(
        name="tiny",
        solver=_text("tiny_solver"),
        proposer=_text("tiny_proposer"),
        verify=_text("tiny_verify"),
        reply="<information>{passages}</information>",
        ends=("</search>", *FINALS),
        strict=True,
        number_passages=False,
    )


def _tagged(name: str, results: str) -> Profile:
    """Searches are tags, and Qwen's tool calls are understood too."""
    return Profile(
        name=name,
        solver=_text("solver"),
        proposer=_text("proposer"),
        verify=_text("verify"),
        reply=f"\n\n<{results}>{{passages}}</{results}>\n\n",
        ends=("</search>", "</tool_call>", *FINALS),
        results=results,
        calls=(CallForm.TAG, CallForm.TOOL_CALL),
    )


def _qwen() -> Profile:
    return Profile(
        name="qwen",
        solver=_text("tool_solver"),
        proposer=_text("tool_proposer"),
        verify=_text("verify"),
        system=_text("qwen_system"),
        reply="\n<|im_start|>user\n<tool_response>\n{passages}\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        ends=("</tool_call>", "<|im_end|>", *FINALS),
        call='<tool_call>\n{"name": "search", "arguments": {"query": "{query}"}}\n</tool_call>',
        results="tool_response",
        closing=("<|im_end|>",),
        calls=(CallForm.TOOL_CALL,),
        forged=(*TagReader.forged, "<|im_start|>"),
    )


def _llama3() -> Profile:
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    return Profile(
        name="llama3",
        solver=_text("tool_solver"),
        proposer=_text("tool_proposer"),
        verify=_text("verify"),
        system=_text("llama3_system"),
        reply=f"{header.format('ipython')}{{passages}}<|eot_id|>{header.format('assistant')}",
        ends=("<|eot_id|>", "<|eom_id|>", *FINALS),
        call='{"name": "search", "parameters": {"query": "{query}"}}',
        closing=("<|eot_id|>", "<|eom_id|>"),
        calls=(CallForm.JSON,),
        forged=(*TagReader.forged, "<|start_header_id|>"),
    )


PROFILES: dict[str, Callable[[], Profile]] = {
    "tiny": _tiny,
    "default": lambda: _tagged("default", "information"),
    "r-search": lambda: _tagged("r-search", "observation"),
    "qwen": _qwen,
    "llama3": _llama3,
}
