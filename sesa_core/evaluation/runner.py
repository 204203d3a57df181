"""Plays held-out questions with a solver and reports accuracy by arm, greedy and at temperature 1.

Invariant: a rollout's random stream is named by its question and sample alone, so two arms that show the same prompt get
the same rollout; such rollouts are played once. A dropped rollout leaves the denominator and is counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.render import Ranked
from sesa_core.config.models import RunConfig, SamplingSettings
from sesa_core.evaluation.arms import cards_for_arm
from sesa_core.evaluation.metrics import wilson_interval
from sesa_core.rollout.loop import Seat, Table, play
from sesa_core.rollout.solver import CardStyle, card_style
from sesa_core.text.normalize import matches
from sesa_core.types import Ending, Role, Trajectory


@dataclass(frozen=True)
class EvaluationQuestion:
    """`kind` is a label by which accuracy is also reported, e.g. "held_out"; `hops` is None where nobody counted them."""

    question_id: str
    question: str
    reference_answers: tuple[str, ...]
    hops: int | None
    kind: str = ""


@dataclass(frozen=True)
class ArmResult:
    """One arm. `outcomes` are per question, greedy (0, 1; None if dropped); `sampled` is the mean over the samples, and
    `sampled_outcomes` has it per question (None if all of them were dropped, or none was asked for)."""

    arm: str
    greedy: float
    greedy_interval: tuple[float, float]
    sampled: float | None
    by_hops: dict[str, float]
    by_kind: dict[str, float]
    cards_per_question: float
    dropped: int
    outcomes: tuple[float | None, ...]
    sampled_outcomes: tuple[float | None, ...]


@dataclass(frozen=True)
class EvaluationReport:
    """All arms over the same questions with the same weights."""

    split: str
    questions: int
    samples: int
    policy_version: int
    bank_version: int | None
    arms: dict[str, ArmResult]

    def as_dict(self) -> dict:
        return asdict(self)


def evaluate(
    questions: Sequence[EvaluationQuestion],
    table: Table,
    snapshot: BankSnapshot | None,
    config: RunConfig,
    announce: Callable[[str], None] = lambda mode: None,
) -> EvaluationReport:
    """Every arm of `config.evaluation`, one greedy rollout and `samples` at temperature 1 per question.

    `announce` is told when "greedy" and "sampled" play begins. `table` is the solver's; its sampling settings are replaced
    by the protocol's.
    """
    settings = config.evaluation
    cards = {arm: cards_for_arm(arm, [q.question for q in questions], snapshot, config.bank) for arm in settings.arms}
    style = card_style(config.bank, table.transcript)
    played: dict[str, list[list[Trajectory]]] = {}
    for mode, samples in (("greedy", 1), ("sampled", settings.samples)):
        announce(mode)
        mode_table = _table_for(table, mode)
        for arm, trajectories in _play_arms(questions, cards, samples, style, mode_table, mode).items():
            played.setdefault(arm, []).append(trajectories)
    arms = {arm: _arm_result(arm, questions, cards[arm], *played[arm], settings.samples) for arm in settings.arms}
    version = snapshot.bank_version if snapshot is not None else None
    return EvaluationReport(settings.split, len(questions), settings.samples, table.engine.policy_version, version, arms)


def _table_for(table: Table, mode: str) -> Table:
    plain = SamplingSettings(temperature=1.0, max_new_tokens=table.settings.solver.max_new_tokens)
    return replace(table, settings=table.settings.model_copy(update={"solver": plain}), greedy=mode == "greedy")


def _play_arms(
    questions: Sequence[EvaluationQuestion],
    cards: dict[str, list[tuple[Ranked, ...]]],
    samples: int,
    style: CardStyle,
    table: Table,
    mode: str,
) -> dict[str, list[Trajectory]]:
    """Per arm the trajectories of all questions, `samples` in a row; identical prompts are played once."""
    seats: dict[tuple, Seat] = {}
    keys: dict[str, list[tuple]] = {arm: [] for arm in cards}
    for arm, hits in cards.items():
        for question, shown in zip(questions, hits, strict=True):
            block, visible = style.render(shown)
            for sample in range(samples):
                key = (question.question_id, sample, block)
                messages = tuple(table.transcript.solver_messages(question.question, block))
                seats.setdefault(key, Seat(Role.SOLVER, question.question_id, sample, messages, visible))
                keys[arm].append(key)
    played = dict(zip(seats, play(list(seats.values()), table, ("evaluate", mode)), strict=True))
    return {arm: [played[key] for key in own] for arm, own in keys.items()}


def _outcome(trajectory: Trajectory, question: EvaluationQuestion) -> float | None:
    if trajectory.ending is Ending.DROPPED:
        return None
    finished = trajectory.ending is Ending.FINISHED and trajectory.final is not None
    return float(finished and matches(trajectory.final or "", question.reference_answers))


def _mean_if_any(values: Sequence[float | None]) -> float | None:
    counted = [v for v in values if v is not None]
    return sum(counted) / len(counted) if counted else None


def _mean(values: Sequence[float | None]) -> float:
    return _mean_if_any(values) or 0.0


def _arm_result(
    arm: str,
    questions: Sequence[EvaluationQuestion],
    cards: Sequence[tuple[Ranked, ...]],
    greedy: Sequence[Trajectory],
    sampled: Sequence[Trajectory],
    samples: int,
) -> ArmResult:
    outcomes = [_outcome(t, q) for t, q in zip(greedy, questions, strict=True)]
    per_question = [_mean_if_any([_outcome(t, q) for t in sampled[i * samples : (i + 1) * samples]]) for i, q in enumerate(questions)]
    counted = [o for o in outcomes if o is not None]
    return ArmResult(
        arm=arm,
        greedy=_mean(outcomes),
        greedy_interval=wilson_interval(sum(counted), len(counted)),
        sampled=_mean(per_question) if samples else None,
        by_hops=_grouped(outcomes, [str(q.hops or "") for q in questions]),
        by_kind=_grouped(outcomes, [q.kind for q in questions]),
        cards_per_question=sum(map(len, cards)) / max(1, len(cards)),
        dropped=sum(t.ending is Ending.DROPPED for t in (*greedy, *sampled)),
        outcomes=tuple(outcomes),
        sampled_outcomes=tuple(per_question),
    )


def _grouped(outcomes: Sequence[float | None], labels: Sequence[str]) -> dict[str, float]:
    return {
        label: _mean([o for o, other in zip(outcomes, labels, strict=True) if other == label]) for label in sorted(set(labels)) if label
    }
