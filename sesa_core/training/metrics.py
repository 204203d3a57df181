"""One step's numbers, by name. Pure.

Invariant: a number is a measurement. Edge case: a mean or a share of nothing (search was down, so no game counts) is none, and the
step does not have that metric; counts it always has.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from sesa_core.means import mean_if_any
from sesa_core.rollout.answers import Undecided
from sesa_core.rollout.proposer import Proposal
from sesa_core.rollout.solver import Attempt, SolverRound
from sesa_core.rollout.validate import Rejection
from sesa_core.types import Ending, StepEvidence, Trajectory

DROP_CAUSES = ("search", "verification", "judge")  # what stands before the colon of a cause
_RUN = 4  # tokens that count as a repetition when they stand again


def step_metrics(
    proposals: Sequence[Proposal],
    attempts: Sequence[Attempt],
    solved: SolverRound,
    evidence: StepEvidence,
    updates: Mapping[str, float],
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Flat names: `solver/...`, `proposer/...`, `bank/...`, of each phase `seconds/...` and `time_share/...`.

    `solved` is what came of `attempts`: without the rollouts of dropped groups, which took their time like all others. Shares are
    in [0, 1], lengths in tokens.
    """
    metrics = _proposer_metrics(proposals) | _solver_metrics(solved) | _bank_metrics(evidence, attempts) | dict(updates)
    played = [*(p.trajectory for p in proposals), *(t for attempt in attempts for t in attempt.trajectories)]
    sampled = sum(sum(t.response_mask) for t in played)
    generation = seconds.get("propose", 0.0) + seconds.get("solve", 0.0)
    metrics["tokens_per_second"] = sampled / generation if generation else None
    whole = sum(seconds.values())
    for name, value in seconds.items():
        phase = name.replace(" ", "_")
        metrics |= {f"seconds/{phase}": value, f"time_share/{phase}": value / whole if whole else None}
    metrics["seconds/step"] = whole
    return {name: float(value) for name, value in sorted(metrics.items()) if value is not None}


def repetition(trajectory: Trajectory) -> float:
    """Share of runs of four sampled tokens that stood before in the same rollout. What the environment wrote does not count."""
    own = [t for t, sampled in zip(trajectory.response_ids, trajectory.response_mask, strict=True) if sampled]
    runs = [tuple(own[i : i + _RUN]) for i in range(len(own) - _RUN + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def _proposer_metrics(proposals: Sequence[Proposal]) -> dict[str, float | None]:
    judged = [p for p in proposals if not p.dropped]
    reasons = Counter(p.rejection for p in judged if p.rejection is not None)
    written = [p.trajectory.final for p in judged if p.trajectory.final]
    return {
        "proposer/posed": len(proposals),
        "proposer/valid": sum(p.problem is not None for p in judged),
        "proposer/valid_rate": mean_if_any([p.problem is not None for p in judged]),
        "proposer/dropped": sum(bool(p.dropped) for p in proposals),
        "proposer/dropped_share": mean_if_any([bool(p.dropped) for p in proposals]),
        "proposer/truncated_rate": mean_if_any([p.trajectory.ending is Ending.TRUNCATED for p in judged]),
        **_drops("proposer", [p.dropped for p in proposals if p.dropped]),
        "proposer/searches": mean_if_any([len(p.trajectory.queries) for p in judged]),
        "proposer/response_tokens": mean_if_any([sum(p.trajectory.response_mask) for p in judged]),
        "proposer/distinct_relations": len({p.target.relation for p in judged if p.problem is not None}),
        "proposer/distinct_targets": len({p.target.target_id for p in judged if p.problem is not None}),
        "proposer/distinct_questions": len(set(written)) / len(written) if written else None,
        "proposer/near_duplicate_share": mean_if_any([p.rejection is Rejection.NEAR_DUPLICATE for p in judged]),
        "proposer/repetition": mean_if_any([repetition(p.trajectory) for p in judged]),
        **{f"proposer/rejected/{reason}": reasons.get(reason, 0) for reason in Rejection},
    }


def _solver_metrics(solved: SolverRound) -> dict[str, float | None]:
    rates = [g.pass_rate for g in solved.groups]
    played = [t for g in solved.groups for t in g.trajectories]
    arms: dict[str, list[float]] = {"relevant": [], "decoy": [], "none": []}
    for group in solved.groups:
        for trajectory, reward in zip(group.trajectories, group.rewards, strict=True):
            arms[_arm(trajectory)].append(reward)
    histogram = Counter(min(int(rate * 5), 4) for rate in rates)
    metrics = {
        "solver/problems": len(rates),
        "solver/problems_from_pool": sum(g.problem.origin == "pool" for g in solved.groups),
        "solver/pass_rate": mean_if_any(rates),
        "solver/solved": sum(rate > 0 for rate in rates),
        "solver/frontier_share": mean_if_any([0 < rate < 1 for rate in rates]),
        "solver/zero_variance_share": mean_if_any([rate in (0.0, 1.0) for rate in rates]),
        "solver/dropped_groups": len(solved.dropped),
        "solver/dropped_share": mean_if_any([False] * len(solved.groups) + [True] * len(solved.dropped)),
        **_drops("solver", list(solved.dropped.values())),
        "solver/answers_judged": sum(isinstance(verdict, bool) for verdict in solved.verdicts.values()),
        "solver/answers_judged_right": sum(verdict is True for verdict in solved.verdicts.values()),
        "solver/answers_undecided": sum(isinstance(verdict, Undecided) for verdict in solved.verdicts.values()),
        "solver/repetition": mean_if_any([repetition(t) for t in played]),
        "solver/searches": mean_if_any([len(t.queries) for t in played]),
        "solver/response_tokens": mean_if_any([sum(t.response_mask) for t in played]),
        "solver/finished_rate": mean_if_any([t.ending is Ending.FINISHED for t in played]),
        "solver/truncated_rate": mean_if_any([t.ending is Ending.TRUNCATED for t in played]),
        "solver/passages_left_out": mean_if_any([sum(turn.left_out for turn in t.turns) for t in played]),
        "solver/reward_with_cards": mean_if_any(arms["relevant"]),
        "solver/reward_with_decoys": mean_if_any(arms["decoy"]),
        "solver/reward_without_cards": mean_if_any(arms["none"]),
    }
    return metrics | {f"solver/pass_rate_bin_{i}": histogram.get(i, 0) for i in range(5)}


def _drops(role: str, causes: Sequence[str]) -> dict[str, int]:
    counted = Counter(cause.partition(":")[0] for cause in causes)
    return {f"{role}/dropped/{cause}": counted[cause] for cause in DROP_CAUSES}


def _arm(trajectory: Trajectory) -> str:
    if not trajectory.cards:
        return "none"
    return "decoy" if trajectory.cards[0].decoy else "relevant"


def _bank_metrics(evidence: StepEvidence, attempts: Sequence[Attempt]) -> dict[str, float | None]:
    """A question's cards are those that any of its rollouts was shown, decoys aside: what was retrieved, as far as there was room."""
    shown = [len({card.card_id for t in a.trajectories for card in t.cards if not card.decoy}) for a in attempts]
    return {
        "bank/cards_per_question": mean_if_any(shown),
        "bank/questions_with_cards": mean_if_any([count > 0 for count in shown]),
        "bank/failures": len(evidence.failures),
        "bank/uses": len(evidence.uses),
    }
