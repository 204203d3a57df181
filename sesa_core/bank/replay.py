"""The ledger played again: from its events alone, the cards and the tombstones as they stood after every boundary.

Pure. Invariant: nothing is copied that can be worked out: a use is priced anew by the rule that its event names, an evicted card
is buried with what its uses earned it. Edge case: the events of a purged card are empty, so it was never there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sesa_core.bank.credit import CREDIT_RULES, apply_uses
from sesa_core.bank.eviction import tombstone
from sesa_core.bank.rows import PURGED
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.schema import SkillCard, card_from_row
from sesa_core.errors import BankDamaged
from sesa_core.types import CardUse

Event = Mapping[str, Any]

_LEAVES_CARD = 4
_ORDER = {  # of the kinds of event within one boundary
    **{"bank_restored": 0, "use": 1, "evicted": 2, "withdrawn": 2, "tombstone_imported": 3},
    **dict.fromkeys(("added", "imported", "suspended", "activated", "approved", "edited", "restored"), _LEAVES_CARD),
    **dict.fromkeys(("refused", "compacted", "migrated", "purged"), 5),  # these leave cards and tombstones as they are
}


@dataclass(frozen=True)
class Replayed:
    """Cards and tombstones by id."""

    cards: Mapping[str, SkillCard]
    tombstones: Mapping[str, Tombstone]


def replay(events: Iterable[Event], boundary_ids: Sequence[int]) -> dict[int, Replayed]:
    """What the ledger says of every boundary. `boundary_ids` are all that were committed, in order.

    Raises BankDamaged naming the first event that cannot be played.
    """
    by_boundary: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["payload"] != PURGED:
            by_boundary[event["boundary_id"]].append(event)
    stray = next(iter(sorted(by_boundary.keys() - set(boundary_ids))), None)
    if stray is not None:
        raise BankDamaged(f"event {by_boundary[stray][0]['event_id']} is of boundary {stray}, which was never committed")
    states: dict[int, Replayed] = {}
    standing = Replayed({}, {})
    for boundary_id in boundary_ids:
        standing = states[boundary_id] = _after(standing, by_boundary[boundary_id], states)
    return states


def _after(before: Replayed, events: Sequence[Event], states: Mapping[int, Replayed]) -> Replayed:
    """The state after one boundary; `states` are those of all earlier ones."""
    now = Replayed(dict(before.cards), dict(before.tombstones))
    _price_uses(now.cards, [e for e in events if e["kind"] == "use"])
    for event in sorted(events, key=lambda e: (_ORDER.get(e["kind"], -1), e["event_id"])):
        try:
            _play(event, now, states)
        except (KeyError, TypeError, ValueError) as error:
            raise _unplayable(event, error) from error
    return now


def _play(event: Event, now: Replayed, states: Mapping[int, Replayed]) -> None:
    kind, card_id, told = event["kind"], event["card_id"], event["payload"]
    if kind not in _ORDER:
        raise ValueError(f"{kind!r} is no kind of event")
    if kind == "bank_restored":
        now.tombstones.clear()
        now.tombstones.update(states[told["to"]].tombstones)
    elif kind == "evicted":
        stone = tombstone(now.cards.pop(card_id), told["reason"], event["boundary_id"])
        now.tombstones[stone.tombstone_id] = stone
    elif kind == "withdrawn":
        del now.cards[card_id]
    elif kind == "tombstone_imported":
        stone = Tombstone(**told["tombstone"] | {"card": card_from_row(told["tombstone"]["card"])})
        now.tombstones[stone.tombstone_id] = stone
    elif _ORDER[kind] == _LEAVES_CARD:
        now.cards[card_id] = card_from_row(told["card"])
        for lifted in told.get("tombstones", ()):
            now.tombstones[lifted] = replace(now.tombstones[lifted], lifted_boundary=event["boundary_id"])


def _price_uses(cards: dict[str, SkillCard], events: Sequence[Event]) -> None:
    """A boundary's uses, credited by the one rule that it had."""
    by_rule: dict[str, list[CardUse]] = defaultdict(list)
    for event in events:
        try:
            use, rule = _use(event["payload"]), event["payload"]["credit"]
            if rule not in CREDIT_RULES or use.card_id not in cards:
                raise KeyError(use.card_id if rule in CREDIT_RULES else rule)
        except (KeyError, TypeError) as error:
            raise _unplayable(event, error) from error
        by_rule[rule].append(use)
    for rule, uses in by_rule.items():
        cards.update(apply_uses(cards, uses, (), CREDIT_RULES[rule]).cards)


def _use(told: Mapping[str, Any]) -> CardUse:
    given = {f.name: told[f.name] for f in fields(CardUse)}
    return CardUse(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _unplayable(event: Event, error: Exception) -> BankDamaged:
    reason = f"{error} is not there" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
    return BankDamaged(f"event {event['event_id']} of boundary {event['boundary_id']} cannot be played again: {reason}")
