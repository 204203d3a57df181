"""What a person may do to single cards: suspend, activate, approve, edit, evict, restore.

Pure: the state of the bank in, an `Edition` out. Invariant: an operation either applies to every card that it names or to none,
and says why it does not. Edge case: a seed is never evicted; a person suspends it.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sesa_core.bank.admission import Known, injection, open_tombstones
from sesa_core.bank.edition import Edition, Happening, Person
from sesa_core.bank.eviction import tombstone
from sesa_core.bank.holding import Holding
from sesa_core.bank.rows import evicted_entry
from sesa_core.bank.state import BankState
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import CONTENT_FIELDS, CardState, Origin, SkillCard, written_card
from sesa_core.embed.base import Embedder
from sesa_core.errors import ConfigError, UserError

EDITABLE = (*CONTENT_FIELDS, "why", "task_family", "dataset", "valid_from_step", "valid_until_step")
DESCRIPTION = (  # what a card is; every other field counts what it has done
    *(*CONTENT_FIELDS, "card_id", "origin", "why", "source_problem_id", "source_run", "judge_model", "prompt_hash"),
    *("created_step", "created_boundary", "run", "task_family", "dataset", "valid_from_step", "valid_until_step", "state", "embedder"),
)


def find_card(state: BankState, card_id: str) -> tuple[SkillCard, np.ndarray]:
    """(card, vector (D,)). Raises UserError, saying so if the card was evicted."""
    card = state.cards.get(card_id)
    if card is not None:
        return card, state.cards.vector(card_id)
    buried = next((t for t in reversed(state.tombstones) if t.card.card_id == card_id), None)
    if buried is not None:
        raise UserError(f"card {card_id} was evicted at boundary {buried.boundary_id} ({buried.reason}); restore it first")
    raise UserError(unknown_card(card_id, state.cards.ids))


def unknown_card(card_id: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(card_id, known, n=1)
    return f"there is no card {card_id!r} in this bank" + (f"; did you mean {near[0]}?" if near else "")


def _set_state(kind: str, wanted: CardState, allowed: tuple[CardState, ...]) -> Callable[[BankState, Sequence[str], Person], Edition]:
    def operation(state: BankState, card_ids: Sequence[str], person: Person) -> Edition:
        cards, happenings = [], []
        for card_id in sorted(set(card_ids)):
            card, vector = find_card(state, card_id)
            if card.state not in allowed:
                raise UserError(f"card {card_id} is {card.state}: it cannot be {kind}")
            changed = card.model_copy(update={"state": wanted})
            cards.append((changed, vector))
            happenings.append(Happening(kind, card_id, changed))
        return Edition(person, tuple(happenings), tuple(cards))

    return operation


suspend = _set_state("suspended", CardState.SUSPENDED, (CardState.ACTIVE, CardState.CANDIDATE))
activate = _set_state("activated", CardState.ACTIVE, (CardState.SUSPENDED,))
approve = _set_state("approved", CardState.ACTIVE, (CardState.CANDIDATE,))


def edit(
    state: BankState, card_id: str, changes: Mapping[str, Any], person: Person, *, embedder: Embedder, dedup_threshold: float | None = None
) -> Edition:
    """Change what a card says or where it holds; it keeps its id and its counters, and only its own vector is made again."""
    card, vector = find_card(state, card_id)
    for name in changes:
        if name not in EDITABLE:
            raise ConfigError(f"card {card_id}: {name}", changes[name], f"what can be edited is {', '.join(EDITABLE)}")
    edited = written_card("edit", card.model_dump() | dict(changes))
    if edited == card:
        raise UserError(f"card {card_id} says that already: the edit changes nothing")
    if embedding_text(edited) != embedding_text(card):
        vector = embedder.embed_cards([embedding_text(edited)])[0]
    if edited.content_hash != card.content_hash:
        refuse_unfit("edit", edited)
        others = {content: other for content, other in state.cards.contents().items() if other != card_id}
        repeated = repetition(edited, vector, others, open_lessons(state, embedder, dedup_threshold))
        if repeated is not None:
            raise UserError(f"card {card_id} would say what {repeated[1]} says ({repeated[0]}: {repeated[2]})")
    changed = {n: [_plain(getattr(card, n)), _plain(getattr(edited, n))] for n in EDITABLE if getattr(card, n) != getattr(edited, n)}
    return Edition(person, (Happening("edited", card_id, edited, {"changed": changed}),), ((edited, vector),))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def evict(state: BankState, card_ids: Sequence[str], person: Person) -> Edition:
    """The cards leave, each with a tombstone that keeps its lesson out until a person restores it."""
    reason = f"person: {person.why}" if person.why else "person"
    stones = []
    for card_id in sorted(set(card_ids)):
        card, vector = find_card(state, card_id)
        if card.origin is Origin.SEED:
            raise UserError(f"card {card_id} is a seed, and seeds are not evicted; suspend it instead")
        stones.append((tombstone(card, reason, state.boundary_id), vector))
    return Edition(
        person,
        tuple(Happening("evicted", t.card.card_id, None, evicted_entry(t)) for t, _ in stones),
        removed=tuple(t.card.card_id for t, _ in stones),
        tombstones=tuple(stones),
        report={"evicted": tuple(evicted_entry(t) for t, _ in stones)},
    )


def restore_card(state: BankState, card_id: str, person: Person, *, keep_counters: bool = False) -> Edition:
    """Lift the tombstones of a card and bring it back with its counters at 0: a person gives it a new trial, and what had it
    evicted must not evict it again at the next boundary. Ledger and lifted tombstone go on knowing what it had done.
    """
    if state.cards.place(card_id) is not None:
        raise UserError(f"card {card_id} is in the bank: there is nothing to restore")
    stones = [
        (t, v)
        for t, v in zip(state.tombstones, state.tombstone_vectors, strict=True)
        if t.card.card_id == card_id and t.lifted_boundary is None
    ]
    if not stones:
        buried = sorted({t.card.card_id for t in state.tombstones if t.lifted_boundary is None})
        raise UserError(unknown_card(card_id, buried).replace("in this bank", "among the tombstones"))
    newest, vector = max(stones, key=lambda pair: pair[0].boundary_id)
    card = newest.card if keep_counters else SkillCard(**{n: getattr(newest.card, n) for n in DESCRIPTION})
    twin = state.cards.contents().get(card.content_hash)
    if twin is not None:
        raise UserError(f"card {twin} says what {card_id} said: there is nothing to restore")
    lifted = tuple((replace(t, lifted_boundary=state.boundary_id), v) for t, v in stones)
    happening = Happening(
        "restored",
        card_id,
        card,
        {"tombstones": sorted(t.tombstone_id for t, _ in stones), "counters": "kept" if keep_counters else "at 0"},
    )
    return Edition(person, (happening,), ((card, vector),), tombstones=lifted)


# -- what a person's card must differ from


def refuse_unfit(where: str, card: SkillCard) -> None:
    """Raises ConfigError for a card that carries a transcript tag or speaks to the model."""
    found = injection(card)
    if found is not None:
        raise ConfigError(f"{where}: card {card.card_id}", found[:60], "a card carries no transcript tag and no instruction to the model")


def open_lessons(state: BankState, embedder: Embedder, dedup_threshold: float | None) -> Known:
    """The buried lessons that still keep their like out."""
    blocking = open_tombstones(state.tombstones, state.boundary_id)
    return Known(
        threshold=embedder.dedup_threshold if dedup_threshold is None else dedup_threshold,
        held=Holding.of(()),
        tombstones=[state.tombstones[i] for i in blocking],
        tombstone_vectors=state.tombstone_vectors[blocking],
    )


def repetition(card: SkillCard, vector: np.ndarray, others: Mapping[str, str], buried: Known) -> tuple[str, str, str] | None:
    """(rule, id, reason) of the card that says the same word for word, or of the tombstone whose lesson it is.

    `others` maps the content hash of every card that counts to its id.
    """
    twin = others.get(card.content_hash)
    return ("duplicate", twin, "the same content") if twin is not None else buried.duplicate_of(card, vector)
