import pytest

from sesa_core.config.models import ProposerRewardSettings
from sesa_core.rewards import frontier_reward, proposer_reward, solver_reward
from sesa_core.types import Ending, Passage, Problem, Role, Target, Trajectory, Turn, TurnKind

TARGET = Target("t1", "Paris", 2, aliases=("City of Light",), relation="capital")
PROBLEM = Problem("p1", "What is the capital?", TARGET, ("Paris", "City of Light"))


def trajectory(*turns: Turn, ending: Ending = Ending.FINISHED) -> Trajectory:
    return Trajectory(Role.SOLVER, "p1", 0, "", (1,), (2,), (1,), (0.0,), turns, ending)


def search(*titles: str) -> Turn:
    return Turn(TurnKind.SEARCH, "q", tuple(Passage(t, t, "text") for t in titles))


def answer(text: str, tags: int = 1) -> Turn:
    return Turn(TurnKind.ANSWER, text, tags=tags)


@pytest.mark.parametrize(
    ("turns", "ending", "expected"),
    [
        ((search("a"), answer("paris")), Ending.FINISHED, 1.0),
        ((answer("city of light."),), Ending.FINISHED, 1.0),
        ((search("a"), answer("Lyon")), Ending.FINISHED, 0.0),
        ((search("a"),), Ending.TURN_LIMIT, 0.0),
        ((Turn(TurnKind.MALFORMED, "Paris"),), Ending.MALFORMED, 0.0),
        ((answer("Paris", tags=2),), Ending.FINISHED, 0.0),
    ],
)
def test_solver_reward(turns, ending, expected):
    assert solver_reward(trajectory(*turns, ending=ending), PROBLEM) == expected


def test_a_judge_decides_only_where_exact_match_says_no():
    wrong = trajectory(answer("the French capital"))
    assert solver_reward(wrong, PROBLEM, judged_correct=True) == 1.0
    assert solver_reward(wrong, PROBLEM, judged_correct=False) == 0.0
    assert solver_reward(trajectory(answer("Paris")), PROBLEM, judged_correct=False) == 1.0


def test_a_dropped_rollout_has_no_reward():
    with pytest.raises(ValueError, match="dropped"):
        solver_reward(trajectory(ending=Ending.DROPPED), PROBLEM)


def test_frontier_reward_with_five_rollouts_is_the_published_table():
    assert [round(frontier_reward(k / 5), 2) for k in range(6)] == [0, 0.64, 0.96, 0.96, 0.64, 0]


def test_frontier_reward_extremes_cost_lambda_and_other_bounds_are_clamped():
    assert frontier_reward(0.0, extreme_penalty=0.1) == -0.1
    assert frontier_reward(1.0, extreme_penalty=0.1) == -0.1
    assert frontier_reward(0.9, high=0.8) == 0.0
    assert frontier_reward(0.5, low=0.1, high=0.9) == pytest.approx(4 * 0.6 * 0.4)
    with pytest.raises(ValueError, match="pass_rate"):
        frontier_reward(1.2)


def test_proposer_reward_reads_its_settings():
    assert proposer_reward(ProposerRewardSettings(), 0.5) == 1.0


def test_an_invalid_question_may_never_pay_better_than_a_hard_one():
    with pytest.raises(ValueError, match="invalid_reward"):
        ProposerRewardSettings(extreme_penalty=0.1, invalid_reward=0.0)
    assert ProposerRewardSettings(extreme_penalty=0.1, invalid_reward=-0.1).invalid_reward == -0.1
