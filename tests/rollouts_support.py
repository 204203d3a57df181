"""Two steps written by hand, small enough to count in the head.

Step 1: three proposals for one target (valid, rejected, dropped) and the valid one's problem, played four times: with its card and
right, with it and malformed, without any and wrong, with a decoy and right. Step 2: the same problem from the pool, played twice.
"""

from dataclasses import replace

from sesa_core.rollout.proposer import Proposal
from sesa_core.rollout.solver import SolverRound
from sesa_core.rollout.validate import Rejection
from sesa_core.training.grpo import Score
from sesa_core.training.step import StepRecord
from sesa_core.types import Ending, Group, Passage, Problem, Role, ShownCard, StepEvidence, Target, Trajectory, Turn, TurnKind

TARGET = Target("train:gold:2", "gold", 2, aliases=("or",), relation="metal")
PROBLEM = Problem("p-1", "Which metal is of Chad?", TARGET, ("gold", "or"), step=1)
CHAD = Passage("w1", "Chad economy", "metal: gold. " + "More is told of it. " * 20)
CARD, DECOY = ShownCard("c-metal", 0.61, '[S1] metal: search "{country} economy"'), ShownCard("c-crop", 0.1, "[S1] crop", decoy=True)


def search(query: str, *passages: Passage, thought: str = "") -> Turn:
    return Turn(TurnKind.SEARCH, query, passages, thought=thought)


def rollout(role: Role, sample: int, *turns: Turn, ending: Ending = Ending.FINISHED, cards: tuple[ShownCard, ...] = ()) -> Trajectory:
    """One sampled token for each turn and one that the environment wrote after it."""
    group, ids = (TARGET.target_id if role is Role.PROPOSER else PROBLEM.problem_id), (1,) * (2 * len(turns))
    mask = (1, 0) * len(turns)
    return Trajectory(role, group, sample, "prompt", (1,), ids, mask, (0.0,) * len(ids), turns, ending, cards, policy_version=3)


def question(text: str) -> Turn:
    return Turn(TurnKind.QUESTION, text)


def answer(text: str) -> Turn:
    return Turn(TurnKind.ANSWER, text)


def first_step() -> StepRecord:
    asked = (
        rollout(Role.PROPOSER, 0, search("gold", CHAD, thought="where is gold?"), search("Chad"), question(PROBLEM.question)),
        rollout(Role.PROPOSER, 1, search("gold", CHAD), question("Where is gold?")),
        rollout(Role.PROPOSER, 2, search("gold"), ending=Ending.DROPPED),
    )
    proposals = (
        Proposal(TARGET, asked[0], problem=PROBLEM),
        Proposal(TARGET, asked[1], rejection=Rejection.ANSWER_LEAK),
        Proposal(TARGET, asked[2], dropped="search: down"),
    )
    played = (
        rollout(Role.SOLVER, 0, search("Chad economy", CHAD), answer("gold"), cards=(CARD,)),
        rollout(Role.SOLVER, 1, Turn(TurnKind.MALFORMED, "I\x1b[31m do not know"), ending=Ending.MALFORMED, cards=(CARD,)),
        rollout(Role.SOLVER, 2, search("Chad"), search("Chad people"), answer("salt")),
        rollout(Role.SOLVER, 3, search("Chad economy", CHAD), answer("gold"), cards=(DECOY,)),
    )
    rewards = (1.0, 0.0, 0.0, 1.0)
    scores = {(Role.PROPOSER, TARGET.target_id, 0): Score(1.0, 0.7), (Role.PROPOSER, TARGET.target_id, 1): Score(0.0, -0.7)}
    scores |= {(Role.SOLVER, "p-1", i): Score(r, 0.8 if r else -0.8) for i, r in enumerate(rewards)}
    return StepRecord(1, proposals, SolverRound((Group(PROBLEM, played, rewards),), {}), StepEvidence(1), {}, scores)


def second_step() -> StepRecord:
    pooled = replace(PROBLEM, origin="pool", step=2)
    played = tuple(rollout(Role.SOLVER, i, search("Chad economy", CHAD), answer("gold")) for i in range(2))
    lost = Proposal(TARGET, rollout(Role.PROPOSER, 0, ending=Ending.MALFORMED), rejection=Rejection.NO_QUESTION)
    return StepRecord(2, (lost,), SolverRound((Group(pooled, played, (1.0, 1.0)),), {}), StepEvidence(2), {})
