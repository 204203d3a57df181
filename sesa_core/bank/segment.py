"""What a finished segment brings to its boundary, and what the boundary says of itself afterwards.

Plain values. Invariant: a report is JSON-able and is stored with its boundary, so a commit that is repeated gives it again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from sesa_core.config.models import BankSettings, QueueSettings
from sesa_core.judge.base import Distillation
from sesa_core.types import SegmentEvidence


@dataclass(frozen=True, kw_only=True)
class JudgeCommit:
    """Judge replies that came after their segment's boundary, and a person who asked for them."""

    kind: ClassVar[str] = "judge"
    segment: int | None = None
    attempt: int | None = None
    evidence: SegmentEvidence = SegmentEvidence(0, 0)
    replies: Sequence[Distillation] = ()
    failed_attempts: Mapping[str, int] = field(default_factory=dict)  # unsuccessful calls per failure, in all
    bank: BankSettings = field(default_factory=BankSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    lexicon: Collection[str] = ()  # names of the world's entities; empty: spans of the question
    evaluation_questions: Collection[str] = ()
    approval: bool = False  # admitted cards wait for a person
    by: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class SegmentCommit(JudgeCommit):
    """What a finished segment brings to its boundary."""

    kind: ClassVar[str] = "segment"
    segment: int
    attempt: int
    evidence: SegmentEvidence
    checkpoints: Mapping[str, Any] = field(default_factory=dict)  # role -> path and hash
    config_hash: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rng: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BoundaryReport:
    """What a boundary did, as JSON-able values. `versions` is empty until it is committed."""

    boundary_id: int
    kind: str
    run: str
    segment: int | None = None
    attempt: int | None = None
    tag: str = ""
    added: tuple[dict[str, Any], ...] = ()
    refused: tuple[dict[str, Any], ...] = ()
    evicted: tuple[dict[str, Any], ...] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    uses: Mapping[str, int] = field(default_factory=dict)
    cards: Mapping[str, int] = field(default_factory=dict)
    gates: tuple[dict[str, Any], ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    last_step: int | None = None  # of the segment
    by: str = ""  # the person who asked for it
    why: str = ""
    changed: tuple[dict[str, Any], ...] = ()  # what a person did to single cards
    details: Mapping[str, Any] = field(default_factory=dict)  # what only this kind of boundary has to say

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "BoundaryReport":
        """The report that `as_json` (or its JSON text) took apart."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
