"""What SESA asks of a search backend."""

from collections.abc import Sequence
from typing import Protocol

from sesa_core.types import Passage


class SearchBackend(Protocol):
    """Batched search. Raises `SearchUnavailable` when it cannot answer; an empty list means that nothing matched."""

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        """For each query at most `top_k` passages, best first, ties by passage id."""
        ...
