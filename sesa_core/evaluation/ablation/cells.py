"""The numbers of one cell: what a complete run measured of itself, and how much it played.

Pure: a report and rows of step metrics in, plain values out. Edge cases: a step that was played in two attempts counts once, as
the later one, and the work that an abandoned attempt cost is in no number; a metric that a step does not have is in no mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sesa_core.means import mean_if_any

MEASURES = {"greedy": "outcomes", "sampled": "sampled_outcomes"}  # accuracy in a report -> the same, per question
SHARES = {  # a name in the document -> the metric of a step
    "frontier share": "solver/frontier_share",
    "valid rate": "proposer/valid_rate",
    "pass rate": "solver/pass_rate",
    "cards per question": "bank/cards_per_question",
}
ENDS = 10  # steps at either end that a mean is taken over


@dataclass(frozen=True)
class Accuracy:
    """A share of all questions, and per question (None where every rollout was dropped)."""

    mean: float
    outcomes: tuple[float | None, ...]


@dataclass(frozen=True)
class CellResult:
    """`before` and `after` training: accuracy by (bank arm, measure). `play` and `work` by the names that the document prints; None
    for a mean of nothing."""

    before: Mapping[tuple[str, str], Accuracy]
    after: Mapping[tuple[str, str], Accuracy]
    play: Mapping[str, float | None]
    work: Mapping[str, float]


@dataclass(frozen=True)
class Cell:
    """One arm with one seed. `state` says how it stands, in words; `result` is None until it is done."""

    arm: str
    seed: int
    state: str
    result: CellResult | None = None


def read_result(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], solver_group: int) -> CellResult:
    """From a complete run's report.json and the rows of its metrics.jsonl."""
    evaluations = [report["evaluations"][key] for key in sorted(report["evaluations"], key=int)]
    by_step = {row["step"]: row for row in rows}
    steps = [by_step[step] for step in sorted(by_step)]
    return CellResult(_accuracies(evaluations[0]), _accuracies(evaluations[-1]), _play(steps, report["cards"]), _work(steps, solver_group))


def _accuracies(evaluation: Mapping[str, Any]) -> dict[tuple[str, str], Accuracy]:
    return {
        (bank, measure): Accuracy(arm[measure], tuple(arm[per_question]))
        for bank, arm in evaluation["arms"].items()
        for measure, per_question in MEASURES.items()
        if arm[measure] is not None
    }


def _play(steps: Sequence[Mapping[str, Any]], cards: Mapping[str, int]) -> dict[str, float | None]:
    ends = {"first": steps[:ENDS], "last": steps[-ENDS:]}
    means = {
        f"{name}, {end} {ENDS} steps": mean_if_any([s.get(metric) for s in part])
        for name, metric in SHARES.items()
        for end, part in ends.items()
    }
    return means | {f"cards {what}": float(cards[what]) for what in ("written", "refused", "evicted")}


def _work(steps: Sequence[Mapping[str, Any]], solver_group: int) -> dict[str, float]:
    """Sums over the steps. A dropped rollout is none of those that were played."""

    def total(*names: str) -> float:
        return sum(s.get(name, 0.0) for s in steps for name in names)

    proposer_tokens = sum((s["proposer/posed"] - s["proposer/dropped"]) * s.get("proposer/response_tokens", 0.0) for s in steps)
    solver_tokens = sum(s["solver/problems"] * solver_group * s.get("solver/response_tokens", 0.0) for s in steps)
    return {
        "steps": len(steps),
        "proposer rollouts": total("proposer/posed"),
        "problems played": total("solver/problems"),
        "of them from the pool": total("solver/problems_from_pool"),
        "solver rollouts": total("solver/problems") * solver_group,
        "tokens sampled": round(proposer_tokens + solver_tokens),
        "solver rollouts trained on": total("solver/groups/rows"),
        "proposer rollouts trained on": total("proposer/groups/rows"),
        "optimizer steps": total("solver/optimizer_steps", "proposer/optimizer_steps"),
        "dropped": total("proposer/dropped") + total("solver/dropped_groups") * solver_group,
    }
