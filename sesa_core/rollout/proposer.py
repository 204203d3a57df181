"""The proposer's half of a step: targets -> rollouts -> proposals, each valid, rejected with a reason, or dropped.

Invariant: siblings that write the same question share one problem; a dropped rollout is neither valid nor rejected.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sesa_core.config.models import ValidationSettings
from sesa_core.errors import ServiceError
from sesa_core.rollout.answers import Undecided
from sesa_core.rollout.loop import Seat, Table, play
from sesa_core.rollout.validate import Rejection, check_question
from sesa_core.rollout.verify import Candidate, Verifier
from sesa_core.types import Ending, Problem, Role, Target, Trajectory


@dataclass(frozen=True)
class Proposal:
    """One proposer rollout and what became of it. Exactly one of `problem`, `rejection`, `dropped` holds."""

    target: Target
    trajectory: Trajectory
    problem: Problem | None = None
    rejection: Rejection | None = None
    dropped: str = ""


def problem_id(question: str, target: Target) -> str:
    """Stable: the same question for the same answer is the same problem, in any step."""
    return "p-" + hashlib.blake2b(f"{question}\x1f{target.answer}".encode(), digest_size=8).hexdigest()


def propose(targets: Sequence[Target], per_target: int, table: Table, step: int) -> list[Proposal]:
    """`per_target` rollouts for each target, in the order of the targets; not yet checked."""
    seats = [
        Seat(Role.PROPOSER, target.target_id, sample, tuple(table.transcript.proposer_messages(target)))
        for target in targets
        for sample in range(per_target)
    ]
    owners = [target for target in targets for _ in range(per_target)]
    played = play(seats, table, ("propose", step))
    return [Proposal(t, trajectory, dropped=trajectory.drop_cause) for t, trajectory in zip(owners, played, strict=True)]


def validate(
    proposals: Sequence[Proposal],
    settings: ValidationSettings,
    verifier: Verifier,
    recent_questions: Sequence[str],
    held_out: Collection[str],
    step: int,
    rng: np.random.Generator,
) -> list[Proposal]:
    """All proposals, each with its problem, its rejection or its drop cause."""
    checked = [_check(p, settings, recent_questions, held_out) for p in proposals]
    open_ones = [i for i, p in enumerate(checked) if p.rejection is None and not p.dropped]
    candidates = [_candidate(checked, i) for i in open_ones]
    try:
        verdicts = verifier.verify(candidates, step, rng) if candidates else []
    except ServiceError as failure:
        for i in open_ones:
            checked[i] = replace(checked[i], dropped=f"verification: {failure}")
        return checked
    for i, candidate, verdict in zip(open_ones, candidates, verdicts, strict=True):
        if isinstance(verdict, Undecided):
            checked[i] = replace(checked[i], dropped=f"verification: {verdict.cause}")
        else:
            checked[i] = replace(checked[i], rejection=verdict, problem=_problem(candidate, step) if verdict is None else None)
    return checked


def _candidate(proposals: Sequence[Proposal], index: int) -> Candidate:
    """Noise may come of any other rollout of the batch, also of one whose own question was rejected or lost."""
    proposal = proposals[index]
    others = [p.trajectory for i, p in enumerate(proposals) if i != index]
    return Candidate(proposal.trajectory.final or "", proposal.target, proposal.trajectory, others)


def _check(proposal: Proposal, settings: ValidationSettings, recent: Sequence[str], held_out: Collection[str]) -> Proposal:
    if proposal.trajectory.ending is Ending.DROPPED:
        return proposal
    return replace(proposal, rejection=check_question(proposal.trajectory, proposal.target, settings, recent, held_out))


def _problem(candidate: Candidate, step: int) -> Problem:
    return Problem(
        problem_id=problem_id(candidate.question, candidate.target),
        question=candidate.question,
        target=candidate.target,
        reference_answers=(candidate.target.answer, *candidate.target.aliases),
        evidence=candidate.trajectory.evidence,
        step=step,
    )
