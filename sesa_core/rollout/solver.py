"""The solver's half of a step: problems and cards -> rollouts (`solve`) -> groups with rewards (`reward_groups`).

Invariant: a group that lost a rollout to an infrastructure failure, or one of whose answers the judge left undecided, is dropped
whole, since keeping only the rollouts that needed no help would bias its pass rate upward. Edge case: a group in which no reward
hinges on the judge is kept whatever became of it; all of its rewards are known, so there is nothing in it to be biased.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sesa_core.cards.render import Ranked, Style, render_cards
from sesa_core.config.models import BankSettings
from sesa_core.rewards import solver_reward
from sesa_core.rng import stream
from sesa_core.rollout.answers import Claim, Undecided, Verdicts, open_claim
from sesa_core.rollout.loop import Seat, Table, play
from sesa_core.rollout.transcript import Transcript
from sesa_core.types import Ending, Group, Problem, Role, ShownCard, Trajectory


@dataclass(frozen=True)
class CardStyle:
    """How cards are written into a prompt. `count_tokens` measures a text in the policy's tokens."""

    style: Style
    max_tokens: int
    count_tokens: Callable[[str], int]

    def render(self, cards: Sequence[Ranked]) -> tuple[str, tuple[ShownCard, ...]]:
        """The block of text (empty for no cards) and what was shown, in order."""
        return render_cards(cards, self.style, self.max_tokens, self.count_tokens)


def card_style(bank: BankSettings, transcript: Transcript) -> CardStyle:
    """How the bank's settings have cards written, measured in the tokens of the transcript's policy."""
    return CardStyle(bank.card_style, bank.card_tokens, lambda text: len(transcript.encode(text)))


def withheld_samples(seed: int, problem: Problem, card_id: str, group_size: int, withhold: str) -> frozenset[int]:
    """The rollouts of a group that do not see the card: none, or half of them (floor or ceiling drawn), keyed by problem and card."""
    if withhold == "none":
        return frozenset()
    rng = stream(seed, "withhold", problem.problem_id, problem.step, card_id)
    half = group_size // 2 + int(group_size % 2 and rng.random() < 0.5)
    return frozenset(int(i) for i in rng.permutation(group_size)[:half])


@dataclass(frozen=True)
class Deck:
    """The cards of one problem: the `relevant` ones that were retrieved, and `decoys` for rollouts that see none of them."""

    relevant: tuple[Ranked, ...] = ()
    decoys: tuple[Ranked, ...] = ()


NO_CARDS = Deck()


@dataclass(frozen=True)
class CardRules:
    """How a group sees its cards: `withhold` "half" or "none", and the share of card-less rollouts that get the decoys."""

    style: CardStyle
    withhold: str = "half"
    decoy_share: float = 0.0


def seats_for(problem: Problem, deck: Deck, group_size: int, rules: CardRules, table: Table) -> list[Seat]:
    """One seat per rollout of the problem's group, each with the cards that it may see."""
    ids = [c.card.card_id for c in deck.relevant]
    hidden = {i: withheld_samples(table.seed, problem, i, group_size, rules.withhold) for i in ids}
    lots = stream(table.seed, "decoys", problem.problem_id, problem.step).random(group_size)
    seats = []
    for sample in range(group_size):
        block, shown = rules.style.render([c for c in deck.relevant if sample not in hidden[c.card.card_id]])
        if not shown and lots[sample] < rules.decoy_share:
            block, decoys = rules.style.render(deck.decoys)
            shown = tuple(replace(c, decoy=True) for c in decoys)
        messages = tuple(table.transcript.solver_messages(problem.question, block))
        seats.append(Seat(Role.SOLVER, problem.problem_id, sample, messages, shown))
    return seats


@dataclass(frozen=True)
class Attempt:
    """One problem with all rollouts of its group, played and not yet rewarded."""

    problem: Problem
    trajectories: tuple[Trajectory, ...]

    @property
    def drop_cause(self) -> str:
        """Why nothing of it counts; empty if no rollout was lost."""
        return next((t.drop_cause for t in self.trajectories if t.ending is Ending.DROPPED), "")

    def claims(self, max_answer_tags: int) -> list[Claim | None]:
        """What must be asked about each rollout, None where its reward is known."""
        problem = self.problem
        return [open_claim(t, problem.question, problem.reference_answers, max_answer_tags) for t in self.trajectories]


@dataclass(frozen=True)
class SolverRound:
    """`groups` in the order of the problems; `dropped` maps a problem id to the cause; `verdicts` are the judge's, if it was asked."""

    groups: tuple[Group, ...]
    dropped: Mapping[str, str]
    verdicts: Verdicts = field(default_factory=dict)


def solve(
    problems: Sequence[Problem], decks: Mapping[str, Deck], group_size: int, rules: CardRules, table: Table, step: int
) -> list[Attempt]:
    """Play every problem `group_size` times. `decks` maps a problem id to its cards."""
    seats = [s for p in problems for s in seats_for(p, decks.get(p.problem_id, NO_CARDS), group_size, rules, table)]
    played = play(seats, table, ("solve", step))
    return [Attempt(p, tuple(played[i * group_size : (i + 1) * group_size])) for i, p in enumerate(problems)]


def open_claims(attempts: Sequence[Attempt], max_answer_tags: int) -> list[Claim]:
    """Everything that must be asked before these can be rewarded; nothing about a group that lost a rollout, which counts for nothing."""
    whole = [attempt for attempt in attempts if not attempt.drop_cause]
    return [claim for attempt in whole for claim in attempt.claims(max_answer_tags) if claim is not None]


def reward_groups(attempts: Sequence[Attempt], max_answer_tags: int, verdicts: Verdicts | None = None) -> SolverRound:
    """Groups with their rewards. Without `verdicts` exact match alone decides; else there must be one for each of `open_claims`."""
    groups, dropped = [], {}
    for attempt in attempts:
        claims = [] if attempt.drop_cause else attempt.claims(max_answer_tags)
        found = [None if claim is None or verdicts is None else verdicts[claim] for claim in claims]
        undecided = next((verdict for verdict in found if isinstance(verdict, Undecided)), None)
        if cause := attempt.drop_cause or (f"judge: {undecided.cause}" if undecided else ""):
            dropped[attempt.problem.problem_id] = cause
            continue
        pairs = zip(attempt.trajectories, found, strict=True)
        rewards = tuple(solver_reward(t, attempt.problem, max_answer_tags, verdict) for t, verdict in pairs)
        groups.append(Group(attempt.problem, attempt.trajectories, rewards))
    return SolverRound(tuple(groups), dropped, verdicts or {})
