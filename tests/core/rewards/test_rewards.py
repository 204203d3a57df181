import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sesa_core.config.proposer_rewards import FrontierRewardSettings, ProposerRewardSettings
from sesa_core.rewards import REWARDS, frontier_reward, one_minus_pass_rate, pass_rate_band, proposer_reward, solver_reward
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


def test_frontier_reward_extremes_cost_lambda_and_other_bounds_are_clamped():
    assert frontier_reward(0.0, extreme_penalty=0.1) == -0.1
    assert frontier_reward(1.0, extreme_penalty=0.1) == -0.1
    assert frontier_reward(0.9, high=0.8) == 0.0
    assert frontier_reward(0.5, low=0.1, high=0.9) == pytest.approx(4 * 0.6 * 0.4)
    with pytest.raises(ValueError, match="pass_rate"):
        frontier_reward(1.2)


EIGHTHS = [k / 8 for k in range(9)]
TABLES = {  # kind -> group size -> what 0, 1, 2 ... passes of a group earn
    "frontier": {
        4: [0, 0.75, 1, 0.75, 0],
        5: [0, 0.64, 0.96, 0.96, 0.64, 0],
        8: [0, 0.4375, 0.75, 0.9375, 1, 0.9375, 0.75, 0.4375, 0],
    },
    "one_minus_pass_rate": {4: [1, 0.75, 0.5, 0.25, 0], 5: [1, 0.8, 0.6, 0.4, 0.2, 0], 8: EIGHTHS[::-1]},
    "pass_rate_band": {4: [0, 0.5, 1, 0.5, 0], 5: [0, 0.4, 0.8, 0.8, 0.4, 0], 8: [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0]},
    "valid_only": {4: [1] * 5, 5: [1] * 6, 8: [1] * 9},
}
SETTINGS = TypeAdapter(ProposerRewardSettings)
pass_rates = st.integers(2, 64).flatmap(lambda group: st.integers(0, group).map(lambda passes: (passes, group)))


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("group", [4, 5, 8])
def test_what_a_question_pays_by_how_many_of_its_group_solve_it(kind, group):
    earned = [proposer_reward(SETTINGS.validate_python({"kind": kind}), passes / group) for passes in range(group + 1)]
    assert earned == pytest.approx(TABLES[kind][group])


def test_the_frontier_reads_its_settings():
    settings = FrontierRewardSettings(low=0.1, high=0.9, extreme_penalty=0.5, invalid_reward=-0.5)
    assert proposer_reward(settings, 0.5) == pytest.approx(4 * 0.6 * 0.4)
    assert proposer_reward(settings, 1.0) == -0.5


@given(pass_rates)
def test_every_reward_is_bounded_and_of_the_shape_that_its_name_says(rate):
    passes, group = rate
    fewer, p, mirrored = (passes - 1) / group, passes / group, (group - passes) / group
    earned = {kind: proposer_reward(SETTINGS.validate_python({"kind": kind}), p) for kind in REWARDS}
    assert all(0 <= reward <= 1 for reward in earned.values())
    for symmetric in (frontier_reward, pass_rate_band):
        assert symmetric(p) == pytest.approx(symmetric(mirrored))
        if 0 < p <= 0.5:
            assert symmetric(fewer) < symmetric(p), "the nearer to one half, the more"
    assert earned["pass_rate_band"] <= earned["frontier"], "a line under a parabola with the same ends and peak"
    if passes:
        assert one_minus_pass_rate(fewer) > one_minus_pass_rate(p)
    assert earned["valid_only"] == 1


@given(st.sampled_from(sorted(REWARDS)), st.floats(allow_nan=True).filter(lambda p: not 0 <= p <= 1))
def test_what_is_no_share_has_no_reward(kind, rate):
    with pytest.raises(ValueError, match="outside"):
        proposer_reward(SETTINGS.validate_python({"kind": kind}), rate)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"kind": "frontier"}, 0),
        ({"kind": "frontier", "extreme_penalty": 0.1}, -0.1),
        ({"kind": "one_minus_pass_rate"}, 0),
        ({"kind": "pass_rate_band"}, 0),
        ({"kind": "valid_only"}, 0.99),
    ],
)
def test_an_invalid_question_may_never_pay_better_than_the_worst_valid_one(settings, most):
    allowed = SETTINGS.validate_python(settings | {"invalid_reward": most})
    assert allowed.invalid_reward <= min(proposer_reward(allowed, k / 5) for k in range(6))
    with pytest.raises(ValueError, match="invalid_reward"):
        SETTINGS.validate_python(settings | {"invalid_reward": most + 0.01})


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("reward", [float("nan"), float("-inf")])
def test_an_invalid_question_pays_a_number(kind, reward):
    with pytest.raises(ValueError, match="finite"):
        SETTINGS.validate_python({"kind": kind, "invalid_reward": reward})
