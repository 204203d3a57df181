"""Plays held-out questions with a solver and reports accuracy by arm, greedy and at temperature 1.

Invariant: a rollout's random stream is named by its question and sample alone, so two arms that show the same prompt get
the same rollout; such rollouts are played once. A dropped rollout leaves the denominator and is counted. Exact match is
reported by itself, whether or not a judge is asked; what the judge makes of the answers stands beside it (`judged.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.render import Ranked
from sesa_core.config.models import RunConfig, SamplingSettings
from sesa_core.evaluation.arms import cards_for_arm
from sesa_core.evaluation.judged import JudgedAccuracy, Mark, Marks, judged_accuracy
from sesa_core.evaluation.metrics import mean, wilson_interval
from sesa_core.means import mean_if_any
from sesa_core.rewards.solver import counted_answer
from sesa_core.rollout.answers import AnswerJudge, open_claim
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
    """One arm, by exact match. `outcomes` are per question, greedy (0, 1; None if dropped); `sampled` is the mean over the samples,
    and `sampled_outcomes` has it per question (None if all of them were dropped, or none was asked for). `judge` has accuracy with
    the answers that the judge calls right, None where `rollout.answer_check` is exact."""

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
    judge: JudgedAccuracy | None = None


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
    answer_judge: AnswerJudge | None = None,
) -> EvaluationReport:
    """Every arm of `config.evaluation`, one greedy rollout and `samples` at temperature 1 per question.

    `announce` is told when "greedy" and "sampled" play begins, and when the "judge" is asked: once about each distinct answer of
    all arms. `table` is the solver's; its sampling settings are replaced by the protocol's.
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
    marks = {arm: _marks(questions, own, settings.samples, config.rollout.max_answer_tags) for arm, own in played.items()}
    arms = {arm: _arm_result(arm, questions, played[arm][0], marks[arm]) for arm in settings.arms}
    if answer_judge is not None:
        announce("judge")
        verdicts = answer_judge.verdicts(m.claim for own in marks.values() for m in own if m.claim is not None)
        arms = {arm: replace(result, judge=judged_accuracy(marks[arm], verdicts)) for arm, result in arms.items()}
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


def _marks(questions: Sequence[EvaluationQuestion], played: Sequence[Sequence[Trajectory]], samples: int, max_answer_tags: int) -> Marks:
    """Of one arm's greedy and sampled rollouts."""
    greedy, sampled = played
    return Marks(
        tuple(_mark(t, q, max_answer_tags) for q, t in zip(questions, greedy, strict=True)),
        tuple(tuple(_mark(t, q, max_answer_tags) for t in sampled[i * samples : (i + 1) * samples]) for i, q in enumerate(questions)),
    )


def _mark(trajectory: Trajectory, question: EvaluationQuestion, max_answer_tags: int) -> Mark:
    if trajectory.ending is Ending.DROPPED:
        return Mark(None)
    answer = counted_answer(trajectory, max_answer_tags)
    exact = answer is not None and matches(answer, question.reference_answers)
    return Mark(float(exact), open_claim(trajectory, question.question, question.reference_answers, max_answer_tags))


def _arm_result(arm: str, questions: Sequence[EvaluationQuestion], greedy: Sequence[Trajectory], marks: Marks) -> ArmResult:
    outcomes = [mark.exact for mark in marks.greedy]
    per_question = [mean_if_any([mark.exact for mark in own]) for own in marks.sampled]
    counted = [o for o in outcomes if o is not None]
    return ArmResult(
        arm=arm,
        greedy=mean(outcomes),
        greedy_interval=wilson_interval(sum(counted), len(counted)),
        sampled=mean(per_question) if any(marks.sampled) else None,
        by_hops=_grouped(outcomes, [str(q.hops or "") for q in questions]),
        by_kind=_grouped(outcomes, [q.kind for q in questions]),
        cards_per_question=sum(len(t.cards) for t in greedy) / max(1, len(greedy)),
        dropped=sum(mark.exact is None for mark in marks),
        outcomes=tuple(outcomes),
        sampled_outcomes=tuple(per_question),
    )


def _grouped(outcomes: Sequence[float | None], labels: Sequence[str]) -> dict[str, float]:
    return {label: mean([o for o, other in zip(outcomes, labels, strict=True) if other == label]) for label in sorted(set(labels)) if label}
