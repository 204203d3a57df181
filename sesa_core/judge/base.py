"""What SESA asks of a judge, and what it records of every call.

Invariant: a `Distillation` carries a draft exactly when its state is `ok`; whatever the state, what the call used is recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sesa_core.types import Failure, Passage


class ReplyState(StrEnum):
    OK = "ok"
    UNPARSABLE = "unparsable"
    TRUNCATED = "truncated"
    REFUSED = "refused"  # the judge says that there is nothing to write, and why
    EMPTY = "empty"
    FILTERED = "filtered"


@dataclass(frozen=True)
class CardDraft:
    """A card as the judge wrote it, before any gate."""

    category: str
    pattern: str
    common_confusion: str
    key_distinction: str
    trigger_keywords: tuple[str, ...]
    queries: tuple[str, ...]


@dataclass(frozen=True)
class Usage:
    """`cost` is in the currency of the configured prices, 0 where there are none; `seconds` is wall-clock time."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Distillation:
    """One judge reply about one failure. Only `ok` consumes the failure.

    Only `ok` carries a draft, and even that not if the judge says that there is no general lesson; `reason` then says why.
    """

    failure_id: str
    prompt_hash: str
    model: str
    state: ReplyState
    draft: CardDraft | None
    reply: str
    usage: Usage
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is equivalent to a reference: `score` in [0, 1], None unless the state is `ok` (never an invented 0)."""

    prompt_hash: str
    model: str
    state: ReplyState
    score: float | None
    reply: str
    usage: Usage
    reason: str = ""


@dataclass(frozen=True)
class EvidenceAnswer:
    """What the given passages answer: `answer` is None unless the state is `ok`, never an invented one.

    `refused` says that the passages support no answer, and why. A judge that will not reply at all has said nothing about them:
    that is `filtered`.
    """

    prompt_hash: str
    model: str
    state: ReplyState
    answer: str | None
    reply: str
    usage: Usage
    reason: str = ""


@dataclass(frozen=True)
class JudgeStatus:
    """What one round trip showed. `model_listed` is None where the server lists no models."""

    model: str
    model_listed: bool | None
    structured_output: bool
    seconds: float


class Judge(Protocol):
    model: str
    prompt_hash: str  # of the distil prompt

    async def distill(self, failure: Failure, max_tokens: int | None = None) -> Distillation:
        """`max_tokens` of the reply, None: the settings'. Raises `JudgeUnavailable` (worth a retry) or `JudgeRejected` (not)."""
        ...

    async def verdict(self, question: str, reference_answers: Sequence[str], answer: str) -> Verdict:
        """Raises as `distill` does."""
        ...

    async def answer(self, question: str, passages: Sequence[Passage]) -> EvidenceAnswer:
        """Raises as `distill` does."""
        ...
