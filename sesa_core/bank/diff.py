"""What changed between two boundaries.

Pure. Invariant: `difference_between(a, b)` names each card once, as added, removed or changed. Edge case: a card that was evicted and
came back with the same content is not a difference; its counters are, if they differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sesa_core.bank.operations import DESCRIPTION
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.schema import SkillCard

Change = tuple[Any, Any]  # before, after


@dataclass(frozen=True)
class ChangedCard:
    """`fields` say what the card is, `counters` what it has done; only what differs is there."""

    card_id: str
    fields: Mapping[str, Change]
    counters: Mapping[str, Change]


@dataclass(frozen=True)
class BankDiff:
    """Ids are sorted."""

    added: tuple[SkillCard, ...]
    removed: tuple[SkillCard, ...]
    changed: tuple[ChangedCard, ...]
    buried: tuple[str, ...]  # tombstones that are new or closed again
    lifted: tuple[str, ...]  # tombstones that were lifted or are gone

    def as_json(self) -> dict[str, Any]:
        cards = {n: [c.model_dump(mode="json", exclude={"vector"}) for c in getattr(self, n)] for n in ("added", "removed")}
        return cards | {"changed": [asdict(c) for c in self.changed], "buried": list(self.buried), "lifted": list(self.lifted)}


def difference_between(
    before: Sequence[SkillCard], after: Sequence[SkillCard], stones_before: Sequence[Tombstone], stones_after: Sequence[Tombstone]
) -> BankDiff:
    """From the cards and tombstones of one boundary to those of another."""
    old, new = ({c.card_id: c for c in cards} for cards in (before, after))
    open_before, open_after = ({t.tombstone_id for t in stones if t.lifted_boundary is None} for stones in (stones_before, stones_after))
    both = (_changed(old[key], new[key]) for key in sorted(old.keys() & new.keys()))
    return BankDiff(
        added=tuple(new[key] for key in sorted(new.keys() - old.keys())),
        removed=tuple(old[key] for key in sorted(old.keys() - new.keys())),
        changed=tuple(c for c in both if c.fields or c.counters),
        buried=tuple(sorted(open_after - open_before)),
        lifted=tuple(sorted(open_before - open_after)),
    )


def _changed(old: SkillCard, new: SkillCard) -> ChangedCard:
    left, right = (c.model_dump(mode="json", exclude={"vector"}) for c in (old, new))
    differing = {n: (left[n], right[n]) for n in left if left[n] != right[n]}
    fields = {n: change for n, change in differing.items() if n in DESCRIPTION}
    return ChangedCard(old.card_id, fields, {n: change for n, change in differing.items() if n not in DESCRIPTION})
