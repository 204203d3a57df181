"""The values that flow through a step: target -> problem -> trajectory -> group -> evidence.

All are frozen and hold plain data. Token lists: `prompt_ids` (P,), `response_ids` (R,), `response_mask` (R,) with 1 on
sampled tokens and 0 on what the environment wrote, `log_probs` (R,) with 0.0 where the mask is 0.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    PROPOSER = "proposer"
    SOLVER = "solver"


@dataclass(frozen=True)
class Passage:
    """One search result. `score` is the backend's own; higher is nearer."""

    passage_id: str
    title: str
    text: str
    score: float = 0.0


@dataclass(frozen=True)
class Target:
    """An answer that the proposer must ask for, with the number of sequential searches it should take."""

    target_id: str
    answer: str
    hops: int
    aliases: tuple[str, ...] = ()
    relation: str = ""
    split: str = "train"


@dataclass(frozen=True)
class ShownCard:
    """A card as one rollout saw it: its place in the prompt ([S1], ...) and the similarity that chose it.

    A `decoy` is an irrelevant card, shown so that the policy learns to pass such cards over; it earns no credit.
    """

    card_id: str
    similarity: float
    text: str
    decoy: bool = False


class TurnKind(StrEnum):
    SEARCH = "search"
    ANSWER = "answer"
    QUESTION = "question"
    MALFORMED = "malformed"


@dataclass(frozen=True)
class Turn:
    """One assistant turn: what the tag held, and what the environment wrote back (searches only). `tags` counts final tags.

    `thought` is what the policy wrote beside the tag; nothing reads it but a person. `left_out` counts passages that were
    found but for which the context had no room.
    """

    kind: TurnKind
    text: str
    passages: tuple[Passage, ...] = ()
    tags: int = 1
    thought: str = ""
    left_out: int = 0


class Ending(StrEnum):
    """How a trajectory ended."""

    FINISHED = "finished"  # an answer or a question was written
    MALFORMED = "malformed"  # a turn held neither a search nor a final tag
    TURN_LIMIT = "turn_limit"  # searches used up without an answer
    TRUNCATED = "truncated"  # no room left in the context
    DROPPED = "dropped"  # an infrastructure failure; never scored


@dataclass(frozen=True)
class Trajectory:
    """The record of one rollout. `sample` numbers the rollouts of one group from 0."""

    role: Role
    group_id: str  # problem_id (solver) or target_id (proposer)
    sample: int
    prompt: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    log_probs: tuple[float, ...]
    turns: tuple[Turn, ...]
    ending: Ending
    cards: tuple[ShownCard, ...] = ()
    policy_version: int = 0
    drop_cause: str = ""

    @property
    def final(self) -> str | None:
        """The last answer or question, None if none was written."""
        return next((t.text for t in reversed(self.turns) if t.kind in (TurnKind.ANSWER, TurnKind.QUESTION)), None)

    @property
    def evidence(self) -> tuple[Passage, ...]:
        """What the ENVIRONMENT wrote, in order, each passage once."""
        seen = {p.passage_id: p for t in self.turns for p in t.passages}
        return tuple(seen.values())

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(t.text for t in self.turns if t.kind is TurnKind.SEARCH)


@dataclass(frozen=True)
class Problem:
    """A valid question. `evidence` is what the environment showed the proposer while it wrote the question."""

    problem_id: str
    question: str
    target: Target
    reference_answers: tuple[str, ...]
    evidence: tuple[Passage, ...] = ()
    step: int = 0
    origin: str = "proposer"  # proposer, or pool when replayed


@dataclass(frozen=True)
class Group:
    """All rollouts of one problem with their rewards. `rewards[i]` belongs to `trajectories[i]`; dropped rollouts are not in it."""

    problem: Problem
    trajectories: tuple[Trajectory, ...]
    rewards: tuple[float, ...]

    @property
    def pass_rate(self) -> float:
        return sum(r > 0 for r in self.rewards) / len(self.rewards) if self.rewards else 0.0


@dataclass(frozen=True)
class CardUse:
    """One problem at which one card was shown: the unit of credit. Applying the same `event_id` twice changes nothing."""

    event_id: str
    card_id: str
    problem_id: str
    step: int
    policy_version: int
    similarity: float
    rewards_with: tuple[float, ...]  # rewards of the rollouts that saw the card
    rewards_without: tuple[float, ...]  # rewards of the rollouts of the same group that did not
    substantive: bool  # at least one rollout that saw it gave an answer on environment-written evidence


@dataclass(frozen=True)
class Failure:
    """A problem that the solver answered wrongly on real evidence: what the judge distils from.

    One problem is one failure, however often it is played; `step` is the last at which it failed.
    """

    failure_id: str
    problem_id: str
    step: int
    question: str
    reference_answers: tuple[str, ...]
    answer: str
    hops: int
    queries: tuple[str, ...]
    evidence: tuple[Passage, ...]  # what the environment showed the failing rollout
    problem_evidence: tuple[Passage, ...]  # where the answer does stand: what the proposer and a sibling that solved it were shown
    shown_cards: tuple[ShownCard, ...] = ()
    pass_rate: float = 0.0
    failed_count: int = 1  # rollouts that failed, over all steps at which the problem failed
    policy_version: int = 0


@dataclass(frozen=True)
class StepEvidence:
    """What one step hands to the boundary: append-only, never touching the bank."""

    step: int
    uses: tuple[CardUse, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class SegmentEvidence:
    """All steps of one attempt at one segment."""

    segment: int
    attempt: int
    steps: tuple[StepEvidence, ...] = field(default_factory=tuple)

    @property
    def uses(self) -> tuple[CardUse, ...]:
        return tuple(u for s in self.steps for u in s.uses)

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(f for s in self.steps for f in s.failures)
