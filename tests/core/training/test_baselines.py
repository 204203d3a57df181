"""A proposer that is compared with the running mean of its rewards, by numbers worked out by hand, alone and in whole steps."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_core.config.load import load_config
from sesa_core.training.baselines import GroupBaseline, RunningBaseline, followed_mean, started_mean
from sesa_core.training.grpo import ScoredRollout, build_rows, scores_of, surviving_rewards
from sesa_core.training.segment import finish, run_segment
from sesa_core.training.selfplay import SelfPlay, SelfPlayState
from sesa_core.training.step import StepRecord, play_step
from sesa_core.types import Role
from tests.core.training.test_grpo import rollout
from tests.core.training.test_outages import SIZES, four
from tests.core.training.test_step import CONFIG
from tests.support import DownSearch

RATE = 0.5


def singles(*rewards: float) -> list[ScoredRollout]:
    """Every rollout a group of its own."""
    return [rollout(reward, f"g{i}") for i, reward in enumerate(rewards)]


def step(mean: float | None, *rewards: float) -> tuple[list[float], float | None]:
    """The advantages of one step, and the mean after it."""
    scored = singles(*rewards)
    before = started_mean(mean, surviving_rewards(scored))
    if before is None:
        return [], None
    rows, _ = build_rows(scored, RunningBaseline(before))
    return [row.advantage for row in rows], followed_mean(before, surviving_rewards(scored), RATE)


def test_three_steps_by_hand():
    """Step 1 starts the mean at its own, 1/2. Step 2 earns 1 and 1: 1/2 more each, the mean goes half way to 1. Step 3: 0 and 1."""
    advantages, mean = step(None, 1.0, 0.0)
    assert (advantages, mean) == ([0.5, -0.5], 0.5)
    advantages, mean = step(mean, 1.0, 1.0)
    assert (advantages, mean) == ([0.5, 0.5], 0.75)
    advantages, mean = step(mean, 0.0, 1.0)
    assert (advantages, mean) == ([-0.75, 0.25], 0.625)


def test_nothing_is_divided_by_and_one_rollout_is_enough():
    rows, counts = build_rows(singles(0.9), RunningBaseline(0.4))
    assert [row.advantage for row in rows] == [0.5]
    assert (counts.groups, counts.live, counts.too_small, counts.rows) == (1, 1, 0, 1)
    assert build_rows(singles(0.9), GroupBaseline())[1].too_small == 1


def test_several_rollouts_of_a_target_are_compared_with_the_same_mean():
    scored = [rollout(1.0, "g", 0), rollout(1.0, "g", 1), rollout(0.25, "h", 0)]
    rows, counts = build_rows(scored, RunningBaseline(0.25))
    assert [(row.group_id, row.advantage) for row in rows] == [("g", 0.75), ("g", 0.75)], "equal rewards teach, where they are not the mean"
    assert (counts.live, counts.zero_variance) == (1, 1)
    assert scores_of(scored, rows, RunningBaseline(0.25)) == {
        (Role.SOLVER, "g", 0): (1.0, 0.75),
        (Role.SOLVER, "g", 1): (1.0, 0.75),
        (Role.SOLVER, "h", 0): (0.25, None),
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_and_who_wrote_nothing_is_in_no_mean(bad):
    scored = [*singles(1.0, bad), rollout(1.0, "silent", mask=(0, 0, 0))]
    assert surviving_rewards(scored) == [1.0]
    rows, counts = build_rows(scored, RunningBaseline(0.5))
    assert [row.advantage for row in rows] == [0.5]
    assert (counts.groups, counts.live, counts.too_small, counts.non_finite, counts.silent) == (3, 1, 2, 1, 1)
    assert step(0.5, bad) == ([], 0.5) and step(None, bad) == ([], None)


rewards = st.floats(-1, 1, allow_nan=False)


@given(start=rewards, constant=rewards, rate=st.floats(0.05, 1))
def test_advantages_of_a_constant_reward_go_to_zero(start, constant, rate):
    """By the factor 1 - rate a step: after 1,000 steps at a rate of .05, 10^-22 of them is left."""
    mean, before = start, math.inf
    for _ in range(1000):
        (advantage,) = RunningBaseline(mean).advantages([constant], ["g"])
        assert abs(advantage) <= before + 1e-12
        mean, before = followed_mean(mean, [constant], rate), abs(advantage)
    assert not RunningBaseline(mean).teaches([constant])
    assert build_rows(singles(constant), RunningBaseline(mean))[0] == [], "nothing is left to learn, the KL term included"


@given(st.lists(rewards, min_size=1), rewards, st.floats(0.01, 1))
def test_the_mean_stays_among_what_was_earned(earned, mean, rate):
    known = [mean, *earned]
    assert min(known) - 1e-12 <= followed_mean(mean, earned, rate) <= max(known) + 1e-12
    assert started_mean(None, earned) == pytest.approx(sum(earned) / len(earned))
    assert followed_mean(mean, [], rate) == started_mean(mean, earned) == mean


# -- whole steps


def running(config=CONFIG, search=None) -> SelfPlay:
    """One question for each of the four countries, compared with the mean of earlier steps."""
    selfplay = config.selfplay.model_copy(update=SIZES | {"proposals_per_target": 1, "segments": 2})
    grpo = config.grpo.model_copy(update={"proposer_baseline": "running", "proposer_baseline_rate": RATE})
    return replace(four(search), config=config.model_copy(update={"selfplay": selfplay, "grpo": grpo}))


def earned(record: StepRecord) -> dict[str, float]:
    """By target."""
    return {key[1]: score.reward for key, score in record.scores.items() if key[0] is Role.PROPOSER}


def test_a_proposer_of_one_question_per_target_learns_against_the_mean():
    g, mean = running(), None
    for number in (1, 2, 3):
        record = play_step(g, number)
        paid = earned(record)
        own = sum(paid.values()) / len(paid)
        mean = own if mean is None else mean
        assert record.metrics["proposer/baseline"] == pytest.approx(mean)
        learned = {r.group_id: r.advantage for batch in g.engines[Role.PROPOSER].batches[-1:] for r in batch}
        assert learned == pytest.approx({target: reward - mean for target, reward in paid.items()})
        mean += RATE * (own - mean)
        assert g.state.proposer_mean == pytest.approx(mean)
    assert g.engines[Role.PROPOSER].policy_version == 3 and record.metrics["proposer/groups/too_small"] == 0


def test_a_proposer_of_groups_has_no_running_mean_and_the_solver_never_has():
    g = four()
    assert "proposer/baseline" not in play_step(g, 1).metrics and g.state.proposer_mean is None
    g = running()
    assert "solver/baseline" not in play_step(g, 1).metrics
    solved: dict[str, float] = {}
    for row in g.engines[Role.SOLVER].batches[0]:
        solved[row.group_id] = solved.get(row.group_id, 0.0) + row.advantage
    assert solved and list(solved.values()) == pytest.approx([0.0] * len(solved), abs=1e-5), "centred inside each group"


def test_a_step_in_which_nothing_was_earned_leaves_the_mean_where_it_was():
    lost, g = replace(running(), search=DownSearch()), running()
    assert "proposer/baseline" not in play_step(lost, 1).metrics and lost.state.proposer_mean is None
    play_step(g, 1)
    mean = g.state.proposer_mean
    record = play_step(replace(g, search=DownSearch()), 2)
    assert (record.metrics["proposer/baseline"], g.state.proposer_mean) == (mean, mean)


def test_a_run_that_is_resumed_goes_on_with_the_same_mean(tmp_path):
    whole, broken = running(), running()
    for number in (1, 2):
        play_step(whole, number)
        play_step(broken, number)
    broken.state.save(tmp_path / "state.json")
    resumed = running()
    resumed.state.load(tmp_path / "state.json")
    assert resumed.state.proposer_mean == broken.state.proposer_mean is not None
    expected, record = play_step(whole, 3), play_step(resumed, 3)
    assert record.scores == expected.scores
    assert record.metrics["proposer/baseline"] == expected.metrics["proposer/baseline"]
    assert resumed.engines[Role.PROPOSER].batches[-1] == whole.engines[Role.PROPOSER].batches[-1]
    assert resumed.state.proposer_mean == whole.state.proposer_mean


def test_the_mean_is_among_what_a_segment_stages(tmp_path):
    g = running()
    result = run_segment(g, tmp_path, 1)
    assert json.loads(Path(result.checkpoints["selfplay"]).read_text())["proposer_mean"] == g.state.proposer_mean is not None


def test_the_means_of_a_segment_are_over_the_steps_that_have_the_metric(tmp_path):
    result = finish(running(), tmp_path, 1, 1, [{"solver/entropy": 1.2, "solver/problems": 4.0}, {"solver/problems": 0.0}])
    assert result.metrics == {"solver/entropy": 1.2, "solver/problems": 2.0}


def test_a_state_of_before_there_was_a_mean_is_read(tmp_path):
    g = four()
    play_step(g, 1)
    g.state.save(tmp_path / "state.json")
    content = json.loads((tmp_path / "state.json").read_text())
    del content["proposer_mean"]
    (tmp_path / "state.json").write_text(json.dumps(content))
    other = SelfPlayState(g.state.sampler, g.state.pool, proposer_mean=0.5)
    other.load(tmp_path / "state.json")
    assert other.proposer_mean is None


def test_the_settings_say_which():
    config = load_config(overrides=["grpo.proposer_baseline=running", "selfplay.proposals_per_target=1"])
    assert (config.grpo.proposer_baseline, config.grpo.proposer_baseline_rate) == ("running", 0.1)
    assert load_config("paper").grpo.proposer_baseline == "group"
