"""The solver's reward: 1 for a right last answer, else 0. Pure; a judge's verdict is fetched by `rollout/` and handed in."""

from sesa_core.text.normalize import matches
from sesa_core.types import Ending, Problem, Trajectory, TurnKind


def solver_reward(trajectory: Trajectory, problem: Problem, max_answer_tags: int = 1, judged_correct: bool | None = None) -> float:
    """Outcome reward in {0.0, 1.0}. `judged_correct` decides only where exact match says no. Never call it on a dropped rollout."""
    answer = counted_answer(trajectory, max_answer_tags)
    return float(answer is not None and (matches(answer, problem.reference_answers) or bool(judged_correct)))


def counted_answer(trajectory: Trajectory, max_answer_tags: int = 1) -> str | None:
    """The one answer that may earn something; None for a game that did not end with an answer, or that wrote too many of them."""
    if trajectory.ending is Ending.DROPPED:
        raise ValueError(f"a dropped rollout has no reward: {trajectory.group_id}/{trajectory.sample}")
    if trajectory.ending is not Ending.FINISHED:
        return None
    tags = sum(t.tags for t in trajectory.turns if t.kind is TurnKind.ANSWER)
    return trajectory.final if tags <= max_answer_tags else None
