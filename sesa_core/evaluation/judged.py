"""Accuracy where the judge may call an answer right that equals no reference, apart from exact match. Pure.

Invariant: an answer that the judge left undecided counts neither as right nor as wrong, and is not left out either, since what is
asked about is what exact match called wrong: without those an accuracy would look better the more often the judge was down. So with
undecided answers there is no accuracy, only the two bounds between which it lies. Edge case: a dropped game is left out, as ever.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sesa_core.evaluation.metrics import mean, wilson_interval
from sesa_core.means import mean_if_any
from sesa_core.rollout.answers import Claim, Undecided, Verdicts

Outcome = float | Undecided | None  # None: the game was dropped


@dataclass(frozen=True)
class Mark:
    """One rollout: 0 or 1 by exact match (None if it was dropped), and what the judge may be asked about it."""

    exact: float | None
    claim: Claim | None = None


@dataclass(frozen=True)
class Marks:
    """Of one arm: one greedy rollout per question, and all samples per question."""

    greedy: tuple[Mark, ...]
    sampled: tuple[tuple[Mark, ...], ...]

    def __iter__(self) -> Iterator[Mark]:
        yield from self.greedy
        for own in self.sampled:
            yield from own


@dataclass(frozen=True)
class JudgedAccuracy:
    """Of one arm. `greedy` and `sampled` are None where answers are undecided; `..._bounds` call those wrong, then right.

    `sampled` and its bounds are None, too, where nothing was sampled. Outcomes are per question as in `ArmResult`, None also for a
    question with an undecided answer. `undecided` counts rollouts, `cause` says why the first of them is.
    """

    greedy: float | None
    greedy_interval: tuple[float, float] | None
    greedy_bounds: tuple[float, float]
    sampled: float | None
    sampled_bounds: tuple[float, float] | None
    outcomes: tuple[float | None, ...]
    sampled_outcomes: tuple[float | None, ...]
    undecided: int
    cause: str


def judged_accuracy(marks: Marks, verdicts: Verdicts) -> JudgedAccuracy:
    """`verdicts` has one for each claim of the marks."""
    greedy = [_outcome(mark, verdicts) for mark in marks.greedy]
    sampled = [[_outcome(mark, verdicts) for mark in own] for own in marks.sampled]
    open_greedy = [o for o in greedy if isinstance(o, Undecided)]
    open_sampled = [o for own in sampled for o in own if isinstance(o, Undecided)]
    decided = [o for o in greedy if isinstance(o, float)]
    greedy_bounds = mean(_taken_as(0.0, greedy)), mean(_taken_as(1.0, greedy))
    low, high = ([mean_if_any(_taken_as(value, own)) for own in sampled] for value in (0.0, 1.0))
    sampled_bounds = (mean(low), mean(high)) if any(sampled) else None
    return JudgedAccuracy(
        greedy=None if open_greedy else greedy_bounds[0],
        greedy_interval=None if open_greedy else wilson_interval(sum(decided), len(decided)),
        greedy_bounds=greedy_bounds,
        sampled=None if open_sampled or sampled_bounds is None else sampled_bounds[0],
        sampled_bounds=sampled_bounds,
        outcomes=tuple(_taken_as(None, greedy)),
        sampled_outcomes=tuple(least if least == most else None for least, most in zip(low, high, strict=True)),
        undecided=len(open_greedy) + len(open_sampled),
        cause=next((o.cause for o in (*open_greedy, *open_sampled)), ""),
    )


def _outcome(mark: Mark, verdicts: Verdicts) -> Outcome:
    verdict = verdicts[mark.claim] if mark.claim is not None else mark.exact
    return float(verdict) if isinstance(verdict, bool) else verdict


def _taken_as(value: float | None, outcomes: Sequence[Outcome]) -> list[float | None]:
    """The outcomes with `value` in place of each undecided one."""
    return [value if isinstance(o, Undecided) else o for o in outcomes]
