"""From judge replies to admitted cards: draft, quality gate, leak, injection, duplicates, in the order of failure ids.

Pure. Invariant: each usable reply ends as exactly one admitted card or one refusal with its reason. Edge case: two drafts of
one pass with the same content: the first counts, the second is a duplicate of it.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import ValidationError

from sesa_core.bank.admission import Known, Lexicon, Refusal, injection, leak, open_tombstones
from sesa_core.bank.failures import Settlement
from sesa_core.bank.holding import Holding
from sesa_core.bank.quality import GateResult, check_candidates
from sesa_core.bank.segment import JudgeCommit
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import CardState, Origin, SkillCard, card_from_draft
from sesa_core.embed.base import Embedder
from sesa_core.errors import GateFailed
from sesa_core.judge.base import Distillation
from sesa_core.types import Failure


@dataclass(frozen=True)
class Admitted:
    """A card that passed everything."""

    card: SkillCard
    vector: np.ndarray  # (D,)
    failure_id: str


@dataclass(frozen=True)
class Admission:
    """What became of the usable replies; `gate` is None if there was no draft to judge."""

    admitted: tuple[Admitted, ...] = ()
    refused: tuple[Refusal, ...] = ()
    gate: GateResult | None = None

    @property
    def cards(self) -> list[SkillCard]:
        return [a.card for a in self.admitted]

    @property
    def vectors(self) -> dict[str, np.ndarray]:
        """Card id -> vector (D,)."""
        return {a.card.card_id: a.vector for a in self.admitted}

    def without(self, card_ids: Collection[str]) -> "Admission":
        """The same, with cards for which a full bank has no room refused instead; they leave no tombstone."""
        staying = tuple(a for a in self.admitted if a.card.card_id not in card_ids)
        full = [
            Refusal(a.failure_id, "bank_full", "every other card is a seed or still protected")
            for a in self.admitted
            if a.card.card_id in card_ids
        ]
        return replace(self, admitted=staying, refused=(*self.refused, *full))


def admit(
    state: BankState,
    kept: Holding,
    evicted: Sequence[Tombstone],
    settled: Settlement,
    commit: JudgeCommit,
    embedder: Embedder,
) -> Admission:
    """Judge the drafts of the usable replies against the bank as it stays (`kept`) and everything that was buried."""
    drafted, refused = _draft(settled, state, commit, embedder)
    if not drafted:
        return Admission(refused=tuple(refused))
    vectors = embedder.embed_cards([embedding_text(c) for c, _ in drafted])  # (C, D)
    candidates = Holding.of([c for c, _ in drafted], vectors)
    gate = check_candidates(candidates.records(), candidates.vectors, dimension=embedder.dimension)
    if gate.whole:
        raise GateFailed("the candidates' gate could not do its work: " + "; ".join(f"{f.rule}: {f.value}" for f in gate.whole))
    known = _known(state, kept, evicted, commit, embedder)
    lexicon = Lexicon.of(commit.lexicon, commit.evaluation_questions)
    findings = {f.card_id: f"{f.rule} ({f.value})" for f in reversed(gate.findings)}
    admitted = []
    for (card, failure), vector in zip(drafted, vectors, strict=True):
        if card.card_id in findings:
            refusal: Refusal | None = Refusal(failure.failure_id, "quality", findings[card.card_id])
        else:
            refusal = _objection(card, failure, vector, known, lexicon)
        if refusal is not None:
            refused.append(refusal)
            continue
        known.add(card, vector)
        admitted.append(Admitted(card, vector, failure.failure_id))
    return Admission(tuple(admitted), tuple(sorted(refused, key=lambda r: r.failure_id)), gate)


def _draft(
    settled: Settlement, state: BankState, commit: JudgeCommit, embedder: Embedder
) -> tuple[list[tuple[SkillCard, Failure]], list[Refusal]]:
    """(cards with their failures, refusals of what does not fit the schema or repeats a draft of this pass word for word)."""
    drafted: dict[str, tuple[SkillCard, Failure]] = {}
    refused = []
    for reply in settled.replies:
        failure = settled.changed[reply.failure_id].failure
        if reply.draft is None:
            refused.append(Refusal(failure.failure_id, "no_lesson", reply.reason))
            continue
        try:
            card = _card(reply, failure, state, commit, embedder)
        except ValidationError as error:
            first = error.errors()[0]
            refused.append(Refusal(failure.failure_id, "schema", f"{'.'.join(map(str, first['loc'])) or 'card'}: {first['msg']}"))
            continue
        if card.content_hash in drafted:
            refused.append(Refusal(failure.failure_id, "duplicate", "the same content", drafted[card.content_hash][0].card_id))
        else:
            drafted[card.content_hash] = (card, failure)
    return list(drafted.values()), refused


def _card(reply: Distillation, failure: Failure, state: BankState, commit: JudgeCommit, embedder: Embedder) -> SkillCard:
    digest = hashlib.sha256(f"{failure.failure_id}\x1f{reply.prompt_hash}\x1f{reply.model}".encode()).hexdigest()[:12]
    return card_from_draft(
        reply.draft,
        card_id=f"card-{digest}",
        origin=Origin.DISTILLED,
        example_question=failure.question,
        source_problem_id=failure.problem_id,
        source_run=state.run,
        run=state.run,
        judge_model=reply.model,
        prompt_hash=reply.prompt_hash,
        created_step=failure.step,
        created_boundary=state.boundary_id,
        valid_from_step=failure.step,
        state=CardState.CANDIDATE if commit.approval else CardState.ACTIVE,
        embedder=embedder.name,
    )


def _known(state: BankState, kept: Holding, evicted: Sequence[Tombstone], commit: JudgeCommit, embedder: Embedder) -> Known:
    """Every lesson that a candidate must differ from: the bank as it stays, and open tombstones, this boundary's included."""
    blocking = open_tombstones(state.tombstones, state.boundary_id)
    stones = [state.tombstones[i] for i in blocking] + list(evicted)
    buried = [state.tombstone_vectors[i] for i in blocking] + [state.cards.vector(t.card.card_id) for t in evicted]
    threshold = commit.bank.dedup_threshold
    return Known(
        threshold=embedder.dedup_threshold if threshold is None else threshold,
        held=kept,
        tombstones=stones,
        tombstone_vectors=np.stack(buried) if buried else np.zeros((0, embedder.dimension), np.float32),
    )


def _objection(card: SkillCard, failure: Failure, vector: np.ndarray, known: Known, lexicon: Lexicon) -> Refusal | None:
    leaked = leak(card, failure, lexicon)
    if leaked is not None:
        return Refusal(failure.failure_id, *leaked)
    injected = injection(card)
    if injected is not None:
        return Refusal(failure.failure_id, "injection", f"speaks to the model or carries a tag: {injected[:80]!r}")
    repeated = known.duplicate_of(card, vector)
    if repeated is not None:
        rule, other, reason = repeated
        return Refusal(failure.failure_id, rule, reason, other)
    return None
