"""`rollout.answer_check=judge` from the settings to a run's report: where it is refused, and a run over a corpus of one's own."""

import json
import re

import pytest

from flows.composition import build_answer_judge, check, needs_judge
from flows.doctor import examine
from flows.form import TrainForm
from flows.worlds import build_world
from sesa_core.config.load import load_config
from sesa_core.errors import ConfigError
from sesa_core.training.run_folder import RunFolder, runs
from tests.flows.conftest import PATIENCE_S, sesa, settings
from tests.flows.test_own_corpus import corpus as corpus
from tests.flows.test_own_corpus import over

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)
JUDGED = "rollout.answer_check=judge"


def test_the_embedded_world_knows_its_answers_better_than_a_judge(tmp_path):
    with pytest.raises(ConfigError, match="kind embedded knows all names of its answers") as refused:
        TrainForm(overrides=[JUDGED], runs_dir=str(tmp_path)).create()
    assert (refused.value.key, refused.value.value) == ("rollout.answer_check", "judge")
    assert not runs(tmp_path)
    config = load_config(overrides=[JUDGED])
    with pytest.raises(ConfigError, match="rollout.answer_check"):
        build_answer_judge(config, build_world(config), None)
    world = next(f for f in examine(config) if f.what == "world")
    assert not world.ok and "rollout.answer_check" in world.detail


@pytest.mark.parametrize("limit", ["token_budget=1000", "requests_per_minute=10", "cost_budget=1"])
def test_a_limit_that_its_calls_would_exceed_unseen_is_refused(limit, corpus):
    priced = "judge.price_prompt=1"
    with pytest.raises(ConfigError, match=rf"not counted against judge\.{limit.split('=')[0]}.*check answers with exact") as refused:
        check(load_config(overrides=over(corpus, JUDGED, priced, f"judge.{limit}")))
    assert refused.value.key == "rollout.answer_check"


def test_a_judge_that_is_needed_for_answers_alone_is_tried_before_there_is_a_run(corpus):
    alone = over(corpus, JUDGED, "distill.enabled=false")
    assert needs_judge(load_config(overrides=alone)) and not needs_judge(load_config(overrides=[*alone, "rollout.answer_check=exact"]))
    with pytest.raises(ConfigError, match="JUDGE_API_KEY"):
        check(load_config(overrides=[*alone, "judge.base_url=https://judge.example/v1"]))
    check(load_config(overrides=alone))


def test_a_wrong_check_is_refused_with_what_is_allowed():
    with pytest.raises(ConfigError, match=re.escape("'exact' or 'judge'")) as refused:
        load_config(overrides=["rollout.answer_check=fuzzy"])
    assert refused.value.key == "rollout.answer_check"


@pytest.mark.long
def test_a_run_is_trained_and_measured_with_a_judge_and_can_be_measured_again(corpus, runs_dir):
    small = ("selfplay.segments=1", "selfplay.targets=4", "selfplay.problems=6", "evaluation.samples=0", "evaluation.arms=[off]")
    where = ("--runs-dir", runs_dir)
    done = sesa("run", "--name", "judged", *where, *settings(*over(corpus, *small, JUDGED)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bank off, judged" in done.stdout
    run = RunFolder(runs_dir / "judged")
    steps = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    assert sum(s["solver/answers_judged"] for s in steps) > 0, "a policy that is never wrong would make this test empty"
    assert not any(s["solver/answers_undecided"] for s in steps)
    arm = run.report()["evaluations"]["1"]["arms"]["off"]
    assert arm["judge"]["greedy"] >= arm["greedy"] and arm["judge"]["undecided"] == 0

    nobody = ("--set", "judge.base_url=http://127.0.0.1:9/v1", "--set", "evaluation.arms=[off]", "--json")
    down = sesa("eval", "--run", "judged", *where, *nobody)
    assert down.returncode == 0, down.stdout + down.stderr
    again = json.loads(down.stdout)["arms"]["off"]
    assert again["outcomes"] == arm["outcomes"], "exact match needs no judge"
    assert again["judge"]["greedy"] is None and again["judge"]["undecided"] > 0 and "127.0.0.1:9" in again["judge"]["cause"]
