"""One step of self-play: targets -> proposals -> problems -> cards -> games -> verdicts -> rewards -> updates -> evidence.

Owns the order of things and nothing else: each line calls a function that has its own file. The step never touches the
bank; it reads one frozen snapshot and returns evidence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from time import perf_counter

from sesa_core.policy.base import TrainingRow
from sesa_core.rewards import proposer_reward
from sesa_core.rng import stream
from sesa_core.rollout.answers import Verdicts
from sesa_core.rollout.proposer import Proposal, propose, validate
from sesa_core.rollout.solver import Attempt, Deck, SolverRound, open_claims, reward_groups, solve
from sesa_core.training.baselines import Baseline, GroupBaseline, RunningBaseline, followed_mean, started_mean
from sesa_core.training.evidence import collect
from sesa_core.training.grpo import GroupCounts, ScoredRollout, Scores, build_rows, scores_of, surviving_rewards
from sesa_core.training.metrics import step_metrics
from sesa_core.training.selfplay import SelfPlay
from sesa_core.types import Group, Problem, Role, StepEvidence


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for whoever shows it. `metrics` is empty until a step's end, `alarms` nearly always."""

    segment: int
    segments: int
    step: int
    steps: int
    phase: str
    metrics: dict[str, float] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRecord:
    """All that one step produced. `metrics` lacks means and shares of what the step had none of."""

    step: int
    proposals: tuple[Proposal, ...]
    round: SolverRound
    evidence: StepEvidence
    metrics: dict[str, float]
    scores: Scores = field(default_factory=dict)


class Clock:
    """Seconds per named phase; tells `announce` when a phase begins."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._announce, self._phase, self._since = announce, "", perf_counter()

    def enter(self, phase: str) -> None:
        now = perf_counter()
        if self._phase:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now
        if phase:
            self._announce(phase)


def play_step(game: SelfPlay, step: int, announce: Callable[[str], None] = lambda phase: None) -> StepRecord:
    """Play step `step` (counted from 1 over the whole run) and update both policies."""
    clock = Clock(announce)
    clock.enter("propose")
    targets = game.state.sampler.draw(game.config.selfplay.targets, stream(game.config.seed, "targets", step))
    proposals = propose(targets, game.config.selfplay.proposals_per_target, game.table(Role.PROPOSER), step)
    clock.enter("validate")
    proposals = validate(
        proposals,
        game.config.validation,
        game.verifier,
        list(game.state.recent_questions),
        game.held_out,
        step,
        stream(game.config.seed, "verify", step),
    )
    game.state.pool.begin_step(step)
    problems = choose_problems(game, proposals, step)
    clock.enter("retrieve")
    decks = retrieve_cards(game, problems, step)
    clock.enter("solve")
    attempts = solve(problems, decks, game.config.selfplay.solver_group, game.card_rules(), game.table(Role.SOLVER), step)
    solved = reward_groups(attempts, game.config.rollout.max_answer_tags, judge_answers(game, attempts, clock))
    updates, scores = update_policies(game, proposals, solved, clock)
    clock.enter("")
    remember(game, solved.groups, step)
    evidence = collect(solved.groups, step)
    metrics = step_metrics(proposals, attempts, solved, evidence, updates, clock.seconds)
    return StepRecord(step, tuple(proposals), solved, evidence, metrics, scores)


def choose_problems(game: SelfPlay, proposals: Sequence[Proposal], step: int) -> list[Problem]:
    """Every valid problem of this step, each once; where they are fewer than `selfplay.problems`, some of the pool beside them.

    None is left out: invalid questions of a target earn their reward, so valid ones without one would count for too little.
    """
    valid = list({p.problem.problem_id: p.problem for p in proposals if p.problem is not None}.values())
    missing, rng = game.config.selfplay.problems - len(valid), stream(game.config.seed, "problems", step)
    pooled = game.state.pool.draw(missing, [p.question for p in valid], rng)
    return valid + [replace(p, origin="pool", step=step) for p in pooled]


def retrieve_cards(game: SelfPlay, problems: Sequence[Problem], step: int) -> dict[str, Deck]:
    """Cards for every problem in one batch from the frozen snapshot; never a card that came from the problem itself."""
    bank = game.config.bank
    if game.snapshot is None or not problems or not bank.top_k:
        return {}
    questions = [p.question for p in problems]
    found = game.snapshot.retrieve(
        questions,
        top_k=bank.top_k,
        floor=bank.floor,
        exclude_sources=[(p.problem_id,) for p in problems],
        forbidden_answers=[p.reference_answers for p in problems],
        utility_weight=bank.utility_weight,
        trigger_weight=bank.trigger_weight,
    )
    rng = stream(game.config.seed, "decoys", step)
    counts = [len(hits) or int(rng.integers(1, bank.top_k + 1)) for hits in found]
    decoys = game.snapshot.decoys(questions, counts, rng) if bank.decoy_share else [()] * len(problems)
    return {p.problem_id: Deck(tuple(hits), tuple(others)) for p, hits, others in zip(problems, found, decoys, strict=True)}


def judge_answers(game: SelfPlay, attempts: Sequence[Attempt], clock: Clock) -> Verdicts | None:
    """What the judge says of the answers that equal no reference, in one batch; None where exact match alone decides."""
    if game.answer_judge is None:
        return None
    clock.enter("judge answers")
    return game.answer_judge.verdicts(open_claims(attempts, game.config.rollout.max_answer_tags))


def update_policies(game: SelfPlay, proposals: Sequence[Proposal], solved: SolverRound, clock: Clock) -> tuple[dict[str, float], Scores]:
    """One GRPO update per role in the configured order, then fresh weights for the generators. Metrics, and what each rollout earned.

    A batch without a live group updates nothing.
    """
    scored = {Role.SOLVER: score_solver(solved.groups, game.config.grpo.baseline), Role.PROPOSER: score_proposals(game, proposals, solved)}
    baselines = choose_baselines(game, scored[Role.PROPOSER])
    metrics: dict[str, float] = {}
    scores: Scores = {}
    for name in game.config.selfplay.update_order:
        role = Role(name)
        frozen = role is Role.PROPOSER and game.config.selfplay.freeze_proposer
        rows, counts, own = what_it_learns(scored[role], baselines[role], frozen)
        scores |= own
        metrics |= {f"{role}/{key}": value for key, value in counts.as_metrics().items()}
        if earned := [r.reward for r in scored[role]]:
            metrics |= {f"{role}/reward": fmean(earned), f"{role}/reward_std": pstdev(earned)}
        if not rows:
            continue
        clock.enter(f"update {role}")
        metrics |= {f"{role}/{key}": value for key, value in game.engines[role].update(rows).items()}
        game.engines[role].sync()
    if isinstance(running := baselines[Role.PROPOSER], RunningBaseline):
        metrics["proposer/baseline"] = running.mean
        rate = game.config.grpo.proposer_baseline_rate
        game.state.proposer_mean = followed_mean(running.mean, surviving_rewards(scored[Role.PROPOSER]), rate)
    return metrics, scores


def what_it_learns(scored: Sequence[ScoredRollout], baseline: Baseline, frozen: bool) -> tuple[list[TrainingRow], GroupCounts, Scores]:
    """The rows of one role's update, its counts, and what each rollout earned. A `frozen` role has rewards and no row."""
    rows, counts = build_rows(scored, baseline)
    scores = scores_of(scored, rows, baseline)
    if not frozen:
        return rows, counts, scores
    return [], replace(counts, rows=0), {key: score._replace(advantage=None) for key, score in scores.items()}


def choose_baselines(game: SelfPlay, proposals: Sequence[ScoredRollout]) -> dict[Role, Baseline]:
    """What each role's rewards of this step are compared with: their groups, or the proposer's the mean of the steps before."""
    group = GroupBaseline(game.config.grpo.normalise_by_std)
    running = game.config.grpo.proposer_baseline == "running"
    mean = started_mean(game.state.proposer_mean, surviving_rewards(proposals)) if running else None
    return {Role.SOLVER: group, Role.PROPOSER: group if mean is None else RunningBaseline(mean)}


def score_solver(groups: Sequence[Group], baseline: str) -> list[ScoredRollout]:
    """Rewards of the solver's rollouts, compared within their problem, or ("arm") apart for those of it that saw its cards and those
    that did not, where there are at least two of each.

    With and without cards the prompts differ, and a baseline belongs to a prompt: against the whole group's mean every rollout
    without the card that all the others needed would be pushed away from whatever it did, right steps included.
    """
    scored = []
    for group in groups:
        saw = [any(not card.decoy for card in t.cards) for t in group.trajectories]
        apart = baseline == "arm" and 2 <= sum(saw) <= len(saw) - 2
        names = [f"{group.problem.problem_id}{('/without', '/with')[s] if apart else ''}" for s in saw]
        scored += [ScoredRollout(t, name, r) for t, name, r in zip(group.trajectories, names, group.rewards, strict=True)]
    return scored


def score_proposals(game: SelfPlay, proposals: Sequence[Proposal], solved: SolverRound) -> list[ScoredRollout]:
    """Rewards of the proposer's rollouts. Dropped ones and those whose group was dropped have none."""
    settings = game.config.proposer_reward
    pass_rates = {g.problem.problem_id: g.pass_rate for g in solved.groups}
    scored = []
    for proposal in proposals:
        if proposal.rejection is not None:
            reward = settings.invalid_reward
        elif proposal.problem is not None and proposal.problem.problem_id in pass_rates:
            reward = proposer_reward(settings, pass_rates[proposal.problem.problem_id])
        else:
            continue
        scored.append(ScoredRollout(proposal.trajectory, proposal.target.target_id, reward))
    return scored


def remember(game: SelfPlay, groups: Sequence[Group], step: int) -> None:
    """Pass rates for the target sampler, problems for the pool, questions for the near-duplicate check."""
    for group in groups:
        game.state.sampler.record(group.problem.target, group.pass_rate)
        game.state.pool.add(group.problem, group.pass_rate)
        if group.problem.origin == "proposer":
            game.state.recent_questions.append(group.problem.question)
    game.state.step = step
