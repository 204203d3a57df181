"""The bank's tables: their Arrow schemas, their keys, and how failures, tombstones and boundaries become rows and back.

Pure. Invariant: `PINNED` tables hold nothing that depends on a clock or on arrival, so equal boundaries give equal content;
`distillations`, `tags` and `boundaries` are not pinned. Edge case: nested values stand as JSON text with sorted keys.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from sesa_core.cards.schema import PRIMARY_KEY, SkillCard, arrow_schema
from sesa_core.types import Failure, Passage, ShownCard

PINNED = ("cards", "events", "tombstones", "failures")
KEYS = {
    "cards": "card_id",
    "events": "event_id",
    "tombstones": "tombstone_id",
    "failures": "failure_id",
    "distillations": "reply_id",
    "tags": "name",
    "boundaries": "boundary_id",
}
PENDING, CONSUMED, DROPPED, DEAD = "pending", "consumed", "dropped", "dead"
CAP = "cap"  # the one reason for a tombstone that does not block re-admission
TEXT, INT, FLOAT = pa.string(), pa.int64(), pa.float64()


def _schema(key: str, /, optional: Mapping[str, pa.DataType] | None = None, **columns: pa.DataType) -> pa.Schema:
    fields = [pa.field(n, t, nullable=False, metadata=PRIMARY_KEY if n == key else None) for n, t in columns.items()]
    return pa.schema(fields + [pa.field(n, t) for n, t in (optional or {}).items()])


EVENTS = _schema("event_id", {"step": INT}, event_id=TEXT, kind=TEXT, boundary_id=INT, card_id=TEXT, problem_id=TEXT, payload=TEXT)
FAILURES = _schema(
    "failure_id",
    {"consumed_boundary": INT},
    **{"failure_id": TEXT, "problem_id": TEXT, "step": INT, "boundary_id": INT},
    **{"state": TEXT, "attempts": INT, "reason": TEXT, "failure": TEXT},
)
DISTILLATIONS = _schema(
    "reply_id",
    **{"reply_id": TEXT, "failure_id": TEXT, "prompt_hash": TEXT, "model": TEXT, "state": TEXT, "boundary_id": INT},
    **{"draft": TEXT, "reply": TEXT, "reason": TEXT, "usage": TEXT},
)
TAGS = _schema("name", name=TEXT, boundary_id=INT, by=TEXT, why=TEXT)  # the names that persons gave to boundaries
BOUNDARIES = _schema(
    "boundary_id",
    {"segment": INT, "attempt": INT},
    **{"boundary_id": INT, "kind": TEXT, "tag": TEXT, "run": TEXT, "owner": TEXT, "committed_at": TEXT},
    **{"config_hash": TEXT, "plan_hash": TEXT, "embedder": TEXT, "dimension": INT, "schema_version": INT},
    **{"versions": TEXT, "checkpoints": TEXT, "rng": TEXT, "metrics": TEXT, "report": TEXT},
)


def _tombstones(dimension: int) -> pa.Schema:
    return _schema(
        "tombstone_id",
        {"lifted_boundary": INT, "expires_boundary": INT},
        **{"tombstone_id": TEXT, "card_id": TEXT, "boundary_id": INT, "reason": TEXT, "card": TEXT},
        vector=pa.list_(pa.float32(), dimension),
    )


def schemas(dimension: int) -> dict[str, pa.Schema]:
    """Every table's schema, in the order of creation: `boundaries` comes last and marks a complete bank."""
    return {
        "cards": arrow_schema(dimension),
        "events": EVENTS,
        "tombstones": _tombstones(dimension),
        "failures": FAILURES,
        "distillations": DISTILLATIONS,
        "tags": TAGS,
        "boundaries": BOUNDARIES,
    }


def to_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class BoundaryRow:
    """One committed state of the bank. `versions` pins every table of `PINNED`."""

    boundary_id: int
    kind: str  # segment, person, judge, compact, restore, purge, migrate; boundary 0 is start
    tag: str
    run: str
    owner: str
    committed_at: str
    config_hash: str
    plan_hash: str
    embedder: str
    dimension: int
    schema_version: int
    versions: Mapping[str, int]
    segment: int | None = None
    attempt: int | None = None
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    rng: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)

    _JSON = ("versions", "checkpoints", "rng", "metrics", "report")

    def row(self) -> dict[str, Any]:
        return asdict(self) | {name: to_json(getattr(self, name)) for name in self._JSON}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "BoundaryRow":
        return cls(**{**row, **{name: json.loads(row[name]) for name in cls._JSON}})


@dataclass(frozen=True)
class Tombstone:
    """A card that left, and why. It blocks its lesson until it is lifted or expires; reason `cap` blocks nothing."""

    tombstone_id: str
    card: SkillCard
    boundary_id: int
    reason: str
    lifted_boundary: int | None = None
    expires_boundary: int | None = None

    def blocks(self, boundary_id: int) -> bool:
        """Whether it still keeps its lesson out at that boundary."""
        expired = self.expires_boundary is not None and self.expires_boundary <= boundary_id
        return self.reason != CAP and self.lifted_boundary is None and not expired

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values; the card as its row, without a vector."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"card": self.card.row() | {"vector": []}}

    def row(self, vector: Any) -> dict[str, Any]:
        return {
            "tombstone_id": self.tombstone_id,
            "card_id": self.card.card_id,
            "boundary_id": self.boundary_id,
            "reason": self.reason,
            "card": to_json(self.card.model_dump(mode="json", exclude={"vector"})),
            "vector": vector,
            "lifted_boundary": self.lifted_boundary,
            "expires_boundary": self.expires_boundary,
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Tombstone":
        names = ("tombstone_id", "boundary_id", "reason", "lifted_boundary", "expires_boundary")
        return cls(card=SkillCard.model_validate_json(row["card"]), **{n: row[n] for n in names})


@dataclass(frozen=True)
class FailureRecord:
    """A failure and where it stands. `boundary_id` is the boundary that took it in."""

    failure: Failure
    boundary_id: int
    state: str = PENDING
    attempts: int = 0
    reason: str = ""
    consumed_boundary: int | None = None

    def row(self) -> dict[str, Any]:
        return {
            "failure_id": self.failure.failure_id,
            "problem_id": self.failure.problem_id,
            "step": self.failure.step,
            "boundary_id": self.boundary_id,
            "state": self.state,
            "attempts": self.attempts,
            "reason": self.reason,
            "failure": to_json(asdict(self.failure)),
            "consumed_boundary": self.consumed_boundary,
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "FailureRecord":
        names = ("boundary_id", "state", "attempts", "reason", "consumed_boundary")
        return cls(failure=failure_from(json.loads(row["failure"])), **{n: row[n] for n in names})


def failure_from(fields: Mapping[str, Any]) -> Failure:
    """The failure that `dataclasses.asdict` took apart."""
    nested = {
        "reference_answers": tuple(fields["reference_answers"]),
        "queries": tuple(fields["queries"]),
        "evidence": tuple(Passage(**p) for p in fields["evidence"]),
        "problem_evidence": tuple(Passage(**p) for p in fields["problem_evidence"]),
        "shown_cards": tuple(ShownCard(**c) for c in fields["shown_cards"]),
    }
    return Failure(**{**fields, **nested})
