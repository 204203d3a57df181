"""Why a question would be shown some cards and not others.

Invariant: the cards that are told as shown are those that `BankSnapshot.retrieve` gives, in its order; nothing is worked out a
second way. Edge case: a card that is left out for two reasons names the first that retrieval meets.
"""

from dataclasses import dataclass, replace

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.bank.store import At, BankStore
from sesa_core.cards.schema import CardState, SkillCard
from sesa_core.config.models import BankSettings


@dataclass(frozen=True)
class Hit:
    """`place` counts from 1, None for a card that is left out; `why_not` then says why. `near` is what is held against `floor`."""

    card: SkillCard
    place: int | None
    similarity: float
    trigger_bonus: float
    utility: float
    floor: float
    why_not: str = ""

    @property
    def near(self) -> float:
        return self.similarity + self.trigger_bonus


def explain(store: BankStore, question: str, settings: BankSettings, at: At = None, *, dataset: str | None = None) -> list[Hit]:
    """Every card of the bank: the shown ones in their order, then the others, nearest first."""
    row = store.boundary(at)
    boundary = row.boundary_id if row is not None else None
    held = store.holding(boundary)
    shown = BankSnapshot.open(store, boundary, dataset=dataset).retrieve([question], **retrieval(settings))[0]
    places = {r.card.card_id: i for i, r in enumerate(shown, start=1)}
    near, bonus, utility = BankSnapshot(held, held.vectors, store.embedder, boundary).measure(question, settings.trigger_weight)
    floor = store.embedder.floor if settings.floor is None else settings.floor
    hits = [Hit(card, places.get(card.card_id), float(near[i]), float(bonus[i]), float(utility[i]), floor) for i, card in enumerate(held)]
    hits = [h if h.place else _left_out(h, dataset) for h in hits]
    return sorted(hits, key=lambda h: (h.place is None, h.place or 0, -h.near, h.card.card_id))


def retrieval(settings: BankSettings) -> dict[str, float | int | None]:
    """The arguments of `retrieve` that the settings of a bank decide."""
    return {n: getattr(settings, n) for n in ("top_k", "floor", "utility_weight", "trigger_weight")}


def _left_out(hit: Hit, dataset: str | None) -> Hit:
    if hit.card.state is not CardState.ACTIVE:
        reason = str(hit.card.state)
    elif dataset is not None and hit.card.dataset not in ("", dataset):
        reason = f"of dataset {hit.card.dataset}"
    elif hit.near < hit.floor:
        reason = f"below the floor of {hit.floor:g}"
    else:
        reason = "others rank higher"
    return replace(hit, why_not=reason)
