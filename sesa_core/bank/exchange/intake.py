"""Records that come into a bank, as an edition: what is new enters, what is there or was buried is skipped and counted.

Pure. Invariant: one bad record refuses the whole file, and a card's own vector is used only if this bank's embedder made it.
Edge case: the tombstones of the file itself keep none of its cards out, since they stood side by side where they come from.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sesa_core.bank.edition import Edition, Happening, Person
from sesa_core.bank.exchange.records import Record
from sesa_core.bank.operations import open_lessons, refuse_unfit, repetition
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import SkillCard
from sesa_core.embed.base import Embedder
from sesa_core.errors import ConfigError


@dataclass(frozen=True)
class Intake:
    """`edition` is None if nothing is new. `skipped` counts by reason, `embedded` the vectors that were made anew."""

    edition: Edition | None
    added: tuple[str, ...]
    buried: tuple[str, ...]
    skipped: Mapping[str, int]
    embedded: int


def take_in(
    state: BankState, records: Sequence[Record], person: Person, *, embedder: Embedder, dedup_threshold: float | None = None
) -> Intake:
    """Raises ConfigError naming place, card and field of the first record that cannot enter."""
    for record in records:
        _check_vector(record, embedder)
        refuse_unfit(record.where, record.card)
    fresh, skipped = _new_cards(state, [r for r in records if r.burial is None])
    stones = _new_stones(state, [r for r in records if r.burial is not None], {c.card.card_id for c in fresh}, skipped)
    vectors, embedded = _vectors([*fresh, *stones], embedder)
    cards, refused = [], []
    buried, present = open_lessons(state, embedder, dedup_threshold), state.cards.contents()
    for record, vector in zip(fresh, vectors[: len(fresh)], strict=True):
        card = record.card.model_copy(update={"vector": (), "embedder": embedder.name, "run": record.card.run or state.run})
        known = repetition(card, vector, present, buried)
        if known is None:
            cards.append((card, vector))
        else:
            skipped[known[0]] += 1
            refused.append({"card_id": card.card_id, "rule": known[0], "other": known[1], "reason": known[2], "failure_id": ""})
    graves = [(_of_bank(r.tombstone, embedder), v) for r, v in zip(stones, vectors[len(fresh) :], strict=True)]
    edition = _edition(state, person, cards, graves, refused) if cards or graves else None
    names = (tuple(c.card_id for c, _ in cards), tuple(t.tombstone_id for t, _ in graves))
    return Intake(edition, *names, dict(sorted(skipped.items())), embedded)


def _edition(
    state: BankState,
    person: Person,
    cards: Sequence[tuple[SkillCard, np.ndarray]],
    graves: Sequence[tuple[Tombstone, np.ndarray]],
    refused: Sequence[dict[str, str]],
) -> Edition:
    happenings = [Happening("imported", c.card_id, c) for c, _ in cards]
    happenings += [
        Happening("tombstone_imported", t.card.card_id, None, {"tombstone_id": t.tombstone_id, "tombstone": t.as_json()}) for t, _ in graves
    ]
    return Edition(person, tuple(happenings), tuple(cards), tombstones=tuple(graves), report={"refused": tuple(refused)})


def _of_bank(stone: Tombstone, embedder: Embedder) -> Tombstone:
    return replace(stone, card=stone.card.model_copy(update={"embedder": embedder.name}))


def _new_cards(state: BankState, records: Sequence[Record]) -> tuple[list[Record], Counter[str]]:
    """Cards whose id the bank does not have, the first of those that say the same."""
    ids, contents, skipped = set(state.cards.ids), set(), Counter()
    buried = {t.card.card_id for t in state.tombstones if t.lifted_boundary is None}
    fresh = []
    for record in sorted(records, key=lambda r: r.card.card_id):
        if record.card.card_id in ids:
            skipped["id is there"] += 1
        elif record.card.card_id in buried:
            skipped["tombstoned"] += 1
        elif record.card.content_hash in contents:
            skipped["duplicate"] += 1
        else:
            contents.add(record.card.content_hash)
            fresh.append(record)
    return fresh, skipped


def _new_stones(state: BankState, records: Sequence[Record], entering: set[str], skipped: Counter[str]) -> list[Record]:
    """Tombstones that the bank does not have. One that still stands yields to a card of its id that lives or enters."""
    known, living = {t.tombstone_id for t in state.tombstones}, entering.union(state.cards.ids)
    fresh = []
    for record in sorted(records, key=lambda r: r.burial.tombstone_id):
        if record.burial.tombstone_id in known:
            skipped["tombstone is there"] += 1
        elif record.burial.lifted_boundary is None and record.card.card_id in living:
            skipped["tombstone of a living card"] += 1
        else:
            fresh.append(record)
    return fresh


def _check_vector(record: Record, embedder: Embedder) -> None:
    vector, maker = record.card.vector, record.card.embedder
    if not vector or maker not in ("", embedder.name):
        return
    where = f"{record.where}: card {record.card.card_id}: vector"
    if len(vector) != embedder.dimension:
        raise ConfigError(where, f"{len(vector)} numbers", f"the embedder {embedder.name} makes {embedder.dimension}")
    norm = float(np.linalg.norm(np.asarray(vector, np.float32)))
    if not abs(norm - 1) < 1e-3:  # also where a number is not finite
        raise ConfigError(where, f"length {norm:g}", "a vector has length 1")


def _vectors(records: Sequence[Record], embedder: Embedder) -> tuple[np.ndarray, int]:
    """((N, D) float32, how many were made anew): the file's own where this embedder made them."""
    matrix = np.zeros((len(records), embedder.dimension), np.float32)
    missing = [i for i, r in enumerate(records) if not r.card.vector or r.card.embedder != embedder.name]
    for i, record in enumerate(records):
        if record.card.vector and record.card.embedder == embedder.name:
            matrix[i] = record.card.vector
    if missing:
        matrix[missing] = embedder.embed_cards([embedding_text(records[i].card) for i in missing])
    return matrix, len(missing)
