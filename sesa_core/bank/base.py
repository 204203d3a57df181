"""What the bank asks of others: an embedder, and judge replies. Both are handed in; any object of this shape will do."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sesa_core.cards.schema import DraftFields

OK = "ok"  # the only state of a reply that consumes its failure


class CardEmbedder(Protocol):
    name: str
    dimension: int
    floor: float
    dedup_threshold: float

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray: ...  # (N, dimension) float32, unit length

    def embed_cards(self, texts: Sequence[str]) -> np.ndarray: ...  # (N, dimension) float32, unit length


class ReplyCost(Protocol):
    prompt_tokens: int
    completion_tokens: int
    cost: float
    seconds: float


class JudgeReply(Protocol):
    """One judge reply about one failure. `state` is "ok" or says why the reply holds no card."""

    failure_id: str
    prompt_hash: str
    model: str
    state: str
    draft: DraftFields | None
    reply: str
    usage: ReplyCost
    reason: str
