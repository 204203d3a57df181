"""The cards that a bank holds, and their vectors: columns for what concerns them all, a card only where somebody looks at one.

Invariant: rows are sorted by card id, and row i of `vectors` belongs to row i of `rows`; nothing changes a holding, `after` makes
another. Edge case: a damaged row is found by whoever reads that card, not before; `verification` reads them all.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sesa_core.cards.schema import SkillCard, arrow_schema, card_from_row

Guard = Callable[[], AbstractContextManager[None]]  # around the reading of a card: names what a damaged one is part of
_SCHEMA = arrow_schema(0).remove(arrow_schema(0).get_field_index("vector"))


class Holding(Sequence[SkillCard]):
    """`rows` are the `cards` table without its vectors, `vectors` is (N, D) float32. Reads like a tuple of cards."""

    def __init__(self, rows: pa.Table, vectors: np.ndarray, guard: Guard = nullcontext) -> None:
        self.rows, self.vectors, self._guard = rows, vectors, guard
        self.ids: list[str] = rows["card_id"].to_pylist()
        self._places = {card_id: i for i, card_id in enumerate(self.ids)}
        self._read: dict[int, SkillCard] = {}

    @classmethod
    def of(cls, cards: Iterable[SkillCard], vectors: np.ndarray | None = None) -> "Holding":
        """The cards, whatever their order; `vectors[i]` belongs to the i-th (None: they have none)."""
        given = list(cards)
        matrix = np.zeros((len(given), 0), np.float32) if vectors is None else vectors
        order = sorted(range(len(given)), key=lambda i: given[i].card_id)
        return cls(_table([given[i] for i in order]), matrix[order])

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> SkillCard: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[SkillCard]: ...

    def __getitem__(self, place: int | slice) -> SkillCard | Sequence[SkillCard]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return self.at([range(len(self))[place]])[0]

    def __iter__(self) -> Iterator[SkillCard]:
        return iter(self.at(range(len(self))))

    def at(self, places: Iterable[int]) -> list[SkillCard]:
        """The cards at these places, in that order."""
        wanted = [int(p) for p in places]
        unread = sorted(set(wanted) - self._read.keys())
        if unread:
            with self._guard():
                self._read |= dict(zip(unread, map(card_from_row, self.rows.take(unread).to_pylist()), strict=True))
        return [self._read[p] for p in wanted]

    def place(self, card_id: str) -> int | None:
        return self._places.get(card_id)

    def get(self, card_id: str) -> SkillCard | None:
        place = self._places.get(card_id)
        return None if place is None else self[place]

    def named(self, card_ids: Iterable[str]) -> dict[str, SkillCard]:
        """The cards with these ids, as far as they are held."""
        held = sorted(i for i in set(card_ids) if i in self._places)
        return dict(zip(held, self.at(self._places[i] for i in held), strict=True))

    def vector(self, card_id: str) -> np.ndarray:
        """(D,). Raises KeyError for a card that is not held."""
        return self.vectors[self._places[card_id]]

    def column(self, name: str) -> np.ndarray:
        """(N,) one field of every card."""
        return self.rows[name].to_numpy()

    def first_triggers(self) -> list[str]:
        """(N,) the keyword that names a card's subject."""
        return pc.list_element(self.rows["trigger_keywords"], 0).to_pylist()

    def contents(self) -> dict[str, str]:
        """Content hash -> card id."""
        return dict(zip(self.rows["content_hash"].to_pylist(), self.ids, strict=True))

    def records(self) -> Any:
        """A pandas frame of the rows, as the quality gate takes them."""
        return self.rows.to_pandas()

    def after(
        self, changed: Iterable[SkillCard] = (), vectors: Mapping[str, np.ndarray] | None = None, removed: Collection[str] = ()
    ) -> "Holding":
        """This holding with other cards in it; `vectors` are those of new cards, a changed one keeps its own unless it is named."""
        new, vectors = {c.card_id: c for c in changed}, vectors or {}
        if not new and not removed:
            return self
        gone = [self._places[card_id] for card_id in {*new, *removed} if card_id in self._places]
        kept, names = np.delete(np.arange(len(self)), gone), sorted(new)
        own = [vectors[name] if name in vectors else self.vector(name) for name in names]
        ids = [self.ids[i] for i in kept]
        order = np.insert(kept, [bisect_left(ids, name) for name in names], np.arange(len(names)) + len(self))
        rows = pa.concat_tables([self.rows, _table([new[name] for name in names])]).take(order)
        held = order < len(self)
        matrix = np.empty((len(order), own[0].shape[0] if own else self.vectors.shape[1]), np.float32)
        if held.any():
            matrix[held] = self.vectors[order[held]]
        if own:
            matrix[~held] = own
        result = Holding(rows, matrix, self._guard)
        read = {self.ids[i]: card for i, card in self._read.items() if self.ids[i] not in removed} | new
        result._read = {result._places[card_id]: card for card_id, card in read.items()}
        return result


def _table(cards: Sequence[SkillCard]) -> pa.Table:
    rows: list[dict[str, Any]] = [card.row() for card in cards]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
