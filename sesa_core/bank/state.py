"""The bank at one boundary, as plain values: what the pure plan reads.

Invariant: `cards` and `tombstones` are sorted by id and row i of the matrix beside them belongs to item i; a card's own
`vector` is empty here. Edge case: `failures` holds the pending ones and those that the reader asked for, not all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sesa_core.bank.tables import BoundaryRow, FailureRecord, Tombstone
from sesa_core.cards.schema import SkillCard


@dataclass(frozen=True)
class BankState:
    last: BoundaryRow | None
    run: str
    cards: tuple[SkillCard, ...] = ()
    vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (N, D)
    tombstones: tuple[Tombstone, ...] = ()
    tombstone_vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (M, D)
    failures: Mapping[str, FailureRecord] = field(default_factory=dict)
    known_uses: frozenset[str] = frozenset()

    @property
    def boundary_id(self) -> int:
        """The id that the next boundary takes."""
        return self.last.boundary_id + 1 if self.last is not None else 0
