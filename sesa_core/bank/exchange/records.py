"""What leaves a bank and comes into one: a card, or the tombstone of one, as plain fields.

Pure. Invariant: `record_from(where, record.fields())` is the record again, counters and vector included. Edge case: a card that
a person wrote by hand has neither origin nor counters; its origin is `person`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sesa_core.bank.tables import Tombstone
from sesa_core.cards.schema import Origin, SkillCard, written_card
from sesa_core.errors import ConfigError


@dataclass(frozen=True)
class Burial:
    """What a tombstone says beside its card."""

    tombstone_id: str
    boundary_id: int
    reason: str
    lifted_boundary: int | None = None
    expires_boundary: int | None = None


_BURIAL = TypeAdapter(Burial)
_BURIAL_FIELDS = tuple(Burial.__dataclass_fields__)


@dataclass(frozen=True)
class Record:
    """`card.vector` is empty where the exporter left vectors out. `where` names file and place, for messages."""

    card: SkillCard
    burial: Burial | None = None
    where: str = ""

    def fields(self) -> dict[str, Any]:
        """Plain values; the key `tombstone` is there for a buried card only."""
        card = self.card.model_dump(mode="json")
        return card if self.burial is None else card | {"tombstone": asdict(self.burial)}

    @property
    def tombstone(self) -> Tombstone | None:
        return None if self.burial is None else Tombstone(card=self.card.model_copy(update={"vector": ()}), **asdict(self.burial))


def records_of(
    cards: Sequence[SkillCard], vectors: np.ndarray, tombstones: Sequence[Tombstone], tombstone_vectors: np.ndarray, *, keep_vectors: bool
) -> list[Record]:
    """Cards first, then tombstones, each by id. `vectors` are (N, D) and (M, D)."""

    def filled(card: SkillCard, vector: np.ndarray) -> SkillCard:
        return card.model_copy(update={"vector": tuple(vector.tolist()) if keep_vectors else ()})

    live = [Record(filled(card, vector)) for card, vector in zip(cards, vectors, strict=True)]
    buried = zip(tombstones, tombstone_vectors, strict=True)
    return live + [Record(filled(t.card, v), Burial(**{n: getattr(t, n) for n in _BURIAL_FIELDS})) for t, v in buried]


def record_from(where: str, fields: Any) -> Record:
    """The record that a file holds at `where`. Raises ConfigError naming place, card and field."""
    if not isinstance(fields, Mapping):
        raise ConfigError(where, str(fields)[:60], "it must be a card as a mapping of its fields")
    given = dict(fields)
    given.pop("content_hash", None)  # follows from the content
    burial = given.pop("tombstone", None)
    card = written_card(where, {"origin": Origin.PERSON} | given)
    return Record(card, None if burial is None else _burial(where, card.card_id, burial), where)


def _burial(where: str, card_id: str, fields: Any) -> Burial:
    try:
        return _BURIAL.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, ("tombstone", *first["loc"])))
        raise ConfigError(f"{where}: card {card_id}: {name}", str(first["input"])[:60], first["msg"]) from error


def checked(records: Sequence[Record], source: str) -> list[Record]:
    """The records themselves. Raises ConfigError for an empty file, or an id that stands there twice."""
    if not records:
        raise ConfigError(source, None, "it holds no card")
    seen: dict[tuple[bool, str], Record] = {}
    for record in records:
        key = (False, record.card.card_id) if record.burial is None else (True, record.burial.tombstone_id)
        if key in seen:
            raise ConfigError(f"{record.where}: card {record.card.card_id}: card_id", key[1], f"{seen[key].where} has it already")
        seen[key] = record
    return list(records)
