"""Which sequence lies in which K/V slot, and from which slot a new sequence may take its beginning.

Owns the token ids whose keys and values each slot holds. Invariant: `ids[s, :length[s]]` is exactly what slot s has cached,
once the wave that seats it has run. Edge case: a finished turn keeps its slot until someone needs it, oldest first, so the
next turn of the same dialogue pays only for its new tokens.
"""

from dataclasses import dataclass

import numpy as np

WORTH_WAITING = 16  # tokens of prefix for which a sequence waits one wave, until the slot that it can copy from is filled


@dataclass(frozen=True)
class Seat:
    """Slot `slot` with its first `reused` tokens to be had from slot `source` (itself: nothing to copy)."""

    slot: int
    source: int
    reused: int


class SlotTable:
    """`slots` places of at most `max_len` cached tokens."""

    def __init__(self, slots: int, max_len: int) -> None:
        self.ids = np.full((slots, max_len + 1), -1, dtype=np.int64)  # (S, L + 1)
        self.length = np.zeros(slots, dtype=np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget every sequence: the cached keys and values are worthless once the weights change."""
        self.length[:] = 0
        self.busy = np.zeros(len(self.length), dtype=bool)
        self.fresh = np.zeros(len(self.length), dtype=bool)
        self.idle_since: dict[int, int] = {}  # slot -> tick at which it was released
        self.ticks = 0

    def seat(self, prompt: np.ndarray) -> Seat | None:
        """A slot for `prompt` (P,), or None when it should wait: nothing is free, or a slot being filled holds much of it."""
        if self.busy.all():
            return None
        matches = self._matches(prompt)
        ready = np.where(self.fresh, 0, matches)
        source = int(ready.argmax())
        reused = int(ready[source])
        if int(matches.max()) > reused + WORTH_WAITING:
            return None
        whole = (~self.busy) & (ready == self.length) & (ready == reused) & (reused > 0)
        if whole.any():
            slot = source = int(whole.argmax())
        else:
            slot = self._vacant(source)
        self._occupy(slot, prompt)
        return Seat(slot, source, min(reused, len(prompt) - 1))  # at least the last token always runs: its logits are needed

    def filled(self) -> None:
        """The wave has run: what was seated in it can now be copied from."""
        self.fresh[:] = False

    def append(self, slots: np.ndarray, tokens: np.ndarray) -> None:
        """One more token's keys and values now lie in each of `slots`."""
        self.ids[slots, self.length[slots]] = tokens
        self.length[slots] += 1

    def release(self, slot: int) -> None:
        """The sequence is finished; its cache stays until the slot is needed."""
        self.busy[slot] = False
        self.ticks += 1
        self.idle_since[slot] = self.ticks

    def _matches(self, prompt: np.ndarray) -> np.ndarray:
        """Length of the prefix that each slot shares with `prompt` (S,)."""
        size = len(prompt)
        differs = self.ids[:, :size] != prompt
        first = np.where(differs.any(1), differs.argmax(1), size)
        return np.minimum(first, self.length)

    def _vacant(self, source: int) -> int:
        empty = np.flatnonzero((~self.busy) & (self.length == 0))
        if len(empty):
            return int(empty[0])
        others = [s for s in self.idle_since if s != source]
        return min(others, key=self.idle_since.__getitem__) if others else source

    def _occupy(self, slot: int, prompt: np.ndarray) -> None:
        self.ids[slot, : len(prompt)] = prompt
        self.length[slot] = len(prompt)
        self.busy[slot] = self.fresh[slot] = True
        self.idle_since.pop(slot, None)
