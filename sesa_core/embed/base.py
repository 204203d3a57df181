"""What the bank asks of an embedder. A similarity threshold belongs to an embedder, so each names its own."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Embedder(Protocol):
    name: str
    dimension: int
    floor: float  # least cosine similarity at which a card is shown
    dedup_threshold: float  # cosine above which two cards teach the same

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray:
        """(N, dimension) float32, unit length."""
        ...

    def embed_cards(self, texts: Sequence[str]) -> np.ndarray:
        """(N, dimension) float32, unit length."""
        ...
