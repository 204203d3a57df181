"""What a step hands to the boundary: card uses and failures, with deterministic ids. Pure, then one append to a file.

Invariant: reading back what was written gives equal values; a file cut in its last line (a crash) is refused whole, since
the attempt that wrote it never finished.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from sesa_core.types import CardUse, Ending, Failure, Group, Passage, SegmentEvidence, StepEvidence, Trajectory

_STEP = TypeAdapter(StepEvidence)


def is_substantive(trajectory: Trajectory) -> bool:
    """An answer was given and the environment had written evidence: a wrong one teaches something."""
    return trajectory.ending is Ending.FINISHED and bool(trajectory.evidence)


def collect(groups: Sequence[Group], step: int) -> StepEvidence:
    """The evidence of one step, in the order of the groups."""
    uses = [use for group in groups for use in _uses(group, step)]
    failures = [failure for group in groups if (failure := _failure(group, step)) is not None]
    return StepEvidence(step, tuple(uses), tuple(failures))


def _uses(group: Group, step: int) -> Iterable[CardUse]:
    similarity = {c.card_id: c.similarity for t in group.trajectories for c in t.cards if not c.decoy}
    for card_id in sorted(similarity):
        saw = [any(c.card_id == card_id and not c.decoy for c in t.cards) for t in group.trajectories]
        yield CardUse(
            event_id=f"use/{step}/{group.problem.problem_id}/{card_id}",
            card_id=card_id,
            problem_id=group.problem.problem_id,
            step=step,
            policy_version=group.trajectories[0].policy_version,
            similarity=similarity[card_id],
            rewards_with=tuple(r for r, s in zip(group.rewards, saw, strict=True) if s),
            rewards_without=tuple(r for r, s in zip(group.rewards, saw, strict=True) if not s),
            substantive=any(s and is_substantive(t) for t, s in zip(group.trajectories, saw, strict=True)),
        )


def _failure(group: Group, step: int) -> Failure | None:
    """At most one failure per problem: the wrong rollout with the longest evidence, ties by sample.

    Its id is the problem's alone: a problem that comes back from the pool and fails again is the same failure.
    """
    wrong = [t for t, r in zip(group.trajectories, group.rewards, strict=True) if r == 0 and is_substantive(t)]
    if not wrong:
        return None
    worst = max(wrong, key=lambda t: (sum(len(p.text) for p in t.evidence), -t.sample))
    problem = group.problem
    return Failure(
        failure_id=f"f/{problem.problem_id}",
        problem_id=problem.problem_id,
        step=step,
        question=problem.question,
        reference_answers=problem.reference_answers,
        answer=worst.final or "",
        hops=problem.target.hops,
        queries=worst.queries,
        evidence=worst.evidence,
        problem_evidence=_supporting_passages(group),
        shown_cards=tuple(c for c in worst.cards if not c.decoy),
        pass_rate=group.pass_rate,
        failed_count=sum(r == 0 for r in group.rewards),
        policy_version=worst.policy_version,
    )


def _supporting_passages(group: Group) -> tuple[Passage, ...]:
    """Where the answer does stand: what the proposer was shown, and what a sibling that solved the problem was shown."""
    solved = next((t.evidence for t, r in zip(group.trajectories, group.rewards, strict=True) if r > 0), ())
    return tuple({p.passage_id: p for p in (*group.problem.evidence, *solved)}.values())


def append_step(path: Path, evidence: StepEvidence) -> None:
    """One JSON line per step."""
    with path.open("ab") as file:
        file.write(_STEP.dump_json(evidence) + b"\n")


def read_segment(path: Path, segment: int, attempt: int) -> SegmentEvidence:
    """All steps of an attempt. Raises `ValueError` for a damaged line."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return SegmentEvidence(segment, attempt, tuple(_STEP.validate_json(line) for line in lines))
