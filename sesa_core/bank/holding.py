"""The cards that a bank holds, and their vectors: columns for what concerns them all, a card only where somebody looks at one.

Invariant: rows are sorted by card id, and row i of `vectors` belongs to row i of `rows`; nothing changes a holding, `after` makes
another. It remembers which of its cards the gate has seen pass, so that a boundary judges those that changed. Edge case: a
damaged row is found by whoever reads that card, not before; `verification` reads them all.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sesa_core.cards.schema import SkillCard, arrow_schema, card_from_row

Guard = Callable[[], AbstractContextManager[None]]  # around the reading of a card: names what a damaged one is part of
_SCHEMA = arrow_schema(0).remove(arrow_schema(0).get_field_index("vector"))


class Holding(Sequence[SkillCard]):
    """`rows` are the `cards` table without its vectors, `vectors` is (N, D) float32. Reads like a tuple of cards."""

    def __init__(self, rows: pa.Table, vectors: np.ndarray, guard: Guard = nullcontext, passed: np.ndarray | None = None) -> None:
        self.rows, self.vectors, self._guard = rows, vectors.view(), guard
        self.vectors.flags.writeable = False
        self._passed = np.zeros(len(rows), bool) if passed is None else passed  # (N,) True for a card that the gate let pass
        self.ids: list[str] = rows["card_id"].to_pylist()
        self._read: dict[int, SkillCard] = {}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {card_id: i for i, card_id in enumerate(self.ids)}

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

    def by_first_trigger(self) -> dict[str, np.ndarray]:
        """Places by the keyword that names a card's subject."""
        if not len(self):
            return {}
        triggers = pc.list_element(self.rows["trigger_keywords"], 0).combine_chunks().dictionary_encode()
        codes = triggers.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order])) + 1
        groups = np.split(order, starts)
        return {triggers.dictionary[codes[group[0]]].as_py(): group for group in groups}

    def contents(self) -> dict[str, str]:
        """Content hash -> card id."""
        return dict(zip(self.rows["content_hash"].to_pylist(), self.ids, strict=True))

    def records(self, columns: Sequence[str] | None = None) -> Any:
        """A pandas frame of the rows, as the quality gate takes them."""
        return (self.rows if columns is None else self.rows.select(columns)).to_pandas()

    def unjudged(self) -> "Holding":
        """The cards that the gate has not seen pass."""
        places = np.flatnonzero(~self._passed)
        return self if len(places) == len(self) else Holding(self.rows.take(places), self.vectors[places], self._guard)

    def judged(self) -> "Holding":
        """The same cards, which the gate has seen pass now."""
        return Holding(self.rows, self.vectors, self._guard, np.ones(len(self), bool))

    def after(
        self, changed: Iterable[SkillCard] = (), vectors: Mapping[str, np.ndarray] | None = None, removed: Collection[str] = ()
    ) -> "Holding":
        """This holding with other cards in it; `vectors` are those of new cards, a changed one keeps its own unless it is named."""
        new, vectors = {c.card_id: c for c in changed}, vectors or {}
        if not new and not removed:
            return self
        gone = [self._places[card_id] for card_id in {*new, *removed} if card_id in self._places]
        kept, names = np.delete(np.arange(len(self)), gone), sorted(new)
        ids = [self.ids[i] for i in kept]
        order = np.insert(kept, [bisect_left(ids, name) for name in names], np.arange(len(names)) + len(self))
        rows = pa.concat_tables([self.rows, _table([new[name] for name in names])]).take(order)
        passed = np.append(self._passed, np.zeros(len(names), bool))[order]
        result = Holding(rows, self._vectors_after(order, names, vectors), self._guard, passed)
        read = {self.ids[i]: card for i, card in self._read.items() if self.ids[i] not in removed} | new
        result._read = {result._places[card_id]: card for card_id, card in read.items()}
        return result

    def _vectors_after(self, order: np.ndarray, names: Sequence[str], vectors: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, D) for the places in `order`, where those past the end are the cards `names`."""
        if len(order) == len(self) and not vectors and all(name in self._places for name in names):
            return self.vectors  # cards changed in place: nothing to copy
        own = [vectors[name] if name in vectors else self.vector(name) for name in names]
        if not len(self):
            return np.array(own, np.float32)
        matrix = self.vectors.take(order, axis=0, mode="clip")
        if own:
            matrix[order >= len(self)] = own
        return matrix


def _table(cards: Sequence[SkillCard]) -> pa.Table:
    rows: list[dict[str, Any]] = [card.row() for card in cards]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
