"""The bank at one boundary, as plain values: what the pure plan reads.

Invariant: cards and `tombstones` are sorted by id, and row i of `tombstone_vectors` belongs to tombstone i; a card's own `vector`
is empty here. Edge case: `failures` holds the pending ones and those that the reader asked for, not all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sesa_core.bank.holding import Holding
from sesa_core.bank.tables import BoundaryRow, FailureRecord, Tombstone


@dataclass(frozen=True)
class BankState:
    last: BoundaryRow | None
    run: str
    cards: Holding = field(default_factory=lambda: Holding.of(()))
    tombstones: tuple[Tombstone, ...] = ()
    tombstone_vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (M, D)
    failures: Mapping[str, FailureRecord] = field(default_factory=dict)
    known_uses: frozenset[str] = frozenset()

    @property
    def boundary_id(self) -> int:
        """The id that the next boundary takes."""
        return self.last.boundary_id + 1 if self.last is not None else 0
