"""The whole bank back to an earlier boundary, as a new one: what is different now is written again, nothing is rolled back.

Pure. Invariant: cards, tombstones and failures are afterwards exactly what that boundary holds; the ledger goes on, and what the
judge was paid for stays. Edge case: a restore is itself undone by a restore.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from sesa_core.bank.edition import Edition, Happening, Person
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import FailureRecord
from sesa_core.errors import UserError

T = TypeVar("T")
Vectored = Iterable[tuple[T, np.ndarray]]
Failures = Mapping[str, FailureRecord]


def restore_to(state: BankState, then: BankState, failures: tuple[Failures, Failures], to: int, person: Person) -> Edition:
    """The edition that leads from `state` to `then`, the bank at boundary `to`; `failures` are all records (now, then) by id."""
    held_then, held_now = (zip(s.cards, s.cards.vectors, strict=True) for s in (then, state))
    cards = _differing(held_then, held_now, lambda c: c.card_id)
    removed = tuple(sorted(set(state.cards.ids) - set(then.cards.ids)))
    buried_then = zip(then.tombstones, then.tombstone_vectors, strict=True)
    stones = _differing(buried_then, zip(state.tombstones, state.tombstone_vectors, strict=True), lambda t: t.tombstone_id)
    unburied = {t.tombstone_id for t in state.tombstones} - {t.tombstone_id for t in then.tombstones}
    now, before = failures
    changed = tuple(record for key, record in sorted(before.items()) if now.get(key) != record)
    withdrawn = {"tombstones": tuple(sorted(unburied)), "failures": tuple(sorted(now.keys() - before.keys()))}
    if not (cards or removed or stones or changed or any(withdrawn.values())):
        raise UserError(f"the bank is as it was at boundary {to}: there is nothing to restore")
    where = {"to": to}
    happenings = [Happening("bank_restored", "", None, where)]
    happenings += [Happening("restored", card.card_id, card, where) for card, _ in cards]
    happenings += [Happening("withdrawn", card_id, None, where) for card_id in removed]
    return Edition(person, tuple(happenings), cards, removed, stones, changed, withdrawn, "restore", {"details": where})


def _differing(then: Vectored[T], now: Vectored[T], key: Callable[[T], Any]) -> tuple[tuple[T, np.ndarray], ...]:
    """The pairs of `then` that are not among `now` just so."""
    present = {key(item): (item, vector) for item, vector in now}

    def same(item: T, vector: np.ndarray) -> bool:
        found = present.get(key(item))
        return found is not None and found[0] == item and np.array_equal(found[1], vector)

    return tuple((item, vector) for item, vector in then if not same(item, vector))
