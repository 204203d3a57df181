"""Rows that begin alike, written down once: token trees for the update's forward and backward pass.

Rollouts of a group have their prompt in common, often their first search and what it found too. Rows become trees, in which every
shared beginning stands once; trees lie side by side in rows of nearly equal length. Invariant: a token sees exactly
the tokens before it in its own row, at their own positions, so its logits are those of the row alone. Edge case: a row that shares
too little is a tree of its own, since every token of a tree is looked at by all others of it, seen or masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LONGEST_TREE = 1024  # tokens, unless a single row is longer: the mask grows with the square


@dataclass(frozen=True)
class Packing:
    """B packed rows of L tokens. `ids`, `positions` (B, L); `sees` (B, L, L), True where a token may look; `places[r]` (T_r,) is
    where row r's tokens lie in the flattened (B * L)."""

    ids: np.ndarray
    positions: np.ndarray
    sees: np.ndarray
    places: list[np.ndarray]


@dataclass
class _Tree:
    size: int
    rows: list[tuple[int, np.ndarray, int]]  # (row, where its tokens lie in the tree, how many of them were there before)


def pack(rows: Sequence[np.ndarray], pairs_per_token: float) -> Packing | None:
    """`rows` of token ids, none empty; None if no two of them are worth a common tree. `pairs_per_token` is how many pairs of tokens
    attention may look at for the price of one token in all other layers."""
    trees = sorted(_trees(rows, pairs_per_token), key=lambda tree: -tree.size)
    if len(trees) == len(rows):
        return None
    bins = _bins([tree.size for tree in trees])
    length = trees[0].size
    shape = (len(bins), length)
    ids, positions = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    sees = np.broadcast_to(np.eye(length, dtype=bool), (*shape, length)).copy()  # padding sees itself: a softmax over nothing is nan
    places: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * len(rows)
    for number, members in enumerate(bins):
        start = 0
        for tree in (trees[i] for i in members):
            for row, within, known in tree.rows:
                at = within + start
                ids[number, at], positions[number, at] = rows[row], np.arange(len(at))
                sees[number][np.ix_(at[known:], at)] = np.tri(len(at), dtype=bool)[known:]
                places[row] = at + number * length
            start += tree.size
    return Packing(ids, positions, sees, places)


def _trees(rows: Sequence[np.ndarray], pairs_per_token: float) -> list[_Tree]:
    """In lexicographic order the longest beginning that a row shares with any earlier one is that with the one just before it."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].tolist())
    limit = max(LONGEST_TREE, *(len(row) for row in rows))
    trees: list[_Tree] = []
    for before, row in zip([None, *order], order, strict=False):
        size = len(rows[row])
        known = 0 if before is None else _common(rows[before], rows[row])
        joined = trees[-1].size + size - known if known else limit + 1
        if joined <= limit and joined**2 - trees[-1].size ** 2 - size**2 <= known * pairs_per_token:
            tree = trees[-1]
            within = np.concatenate((tree.rows[-1][1][:known], np.arange(tree.size, tree.size + size - known)))
            tree.size += size - known
            tree.rows.append((row, within, known))
        else:
            trees.append(_Tree(size, [(row, np.arange(size), 0)]))
    return trees


def _common(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    differs = a[:size] != b[:size]
    return int(differs.argmax()) if differs.any() else size


def _bins(sizes: Sequence[int]) -> list[list[int]]:
    """First fit, of `sizes` in falling order, into bins of the largest size: indices per bin."""
    room: list[int] = []
    bins: list[list[int]] = []
    for index, size in enumerate(sizes):
        fit = next((b for b, left in enumerate(room) if left >= size), None)
        if fit is None:
            bins.append([])
            room.append(sizes[0])
            fit = len(bins) - 1
        bins[fit].append(index)
        room[fit] -= size
    return bins
