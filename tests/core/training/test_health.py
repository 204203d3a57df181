"""Alarms: by hand-computed numbers, and from a step's metrics to the person and the file."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sesa_core.config.models import HealthSettings
from sesa_core.errors import UnhealthyRun
from sesa_core.report.tables import health_rows
from sesa_core.training.health import RULES, Health
from sesa_core.training.metrics import repetition
from sesa_core.training.segment import ALARMS_FILE, latest_complete_result, run_segment
from sesa_core.training.selfplay import SelfPlay
from sesa_core.types import Role
from tests.core.training.test_outages import FOUR, FailsAt, four, solver
from tests.core.training.test_step import CONFIG, game
from tests.support import DownSearch

VALID = "proposer/valid_rate"


def alarms_at(health: Health, metric: str, values: list[float]) -> list[int]:
    """The steps, counted from 1, at which an alarm about the metric begins."""
    return [step for step, value in enumerate(values, start=1) if any(a.metric == metric for a in health.look(step, {metric: value}))]


def test_an_alarm_begins_with_the_third_step_in_a_row_and_sounds_once():
    health = Health(HealthSettings(window=3, least_valid_rate=0.1), {})
    assert alarms_at(health, VALID, [0.05, 0.05, 0.2, 0.05, 0.0, 0.09, 0.05, 0.05]) == [6]


def test_it_sounds_again_only_after_the_metric_was_within_its_bound():
    health = Health(HealthSettings(window=2, most_repetition=0.5), {})
    assert alarms_at(health, "solver/repetition", [0.6, 0.6, 0.6, 0.5, 0.51, 0.7]) == [2, 6]


def test_a_step_without_the_metric_neither_goes_on_with_a_streak_nor_ends_it():
    health = Health(HealthSettings(window=2), {})
    assert [len(health.look(1, {"solver/entropy": 0.001})), len(health.look(2, {})), len(health.look(3, {"solver/entropy": 0.001}))] == [
        0,
        0,
        1,
    ]


def test_a_streak_goes_on_in_the_next_segment_and_in_a_run_that_is_resumed(tmp_path):
    settings, saved = HealthSettings(window=3, least_valid_rate=0.1), game().state
    assert alarms_at(Health(settings, saved.streaks), VALID, [0.05, 0.05]) == []
    saved.save(tmp_path / "state.json")
    resumed = game().state
    resumed.load(tmp_path / "state.json")
    assert alarms_at(Health(settings, resumed.streaks), VALID, [0.05]) == [1]
    assert alarms_at(Health(settings, saved.streaks), VALID, [0.05]) == [1]


def test_segments_shorter_than_the_window_can_alarm(tmp_path):
    health = CONFIG.health.model_copy(update={"window": 2, "most_repetition": -1.0})
    selfplay = CONFIG.selfplay.model_copy(update={"steps_per_segment": 1, "segments": 2})
    g = replace(game(), config=CONFIG.model_copy(update={"health": health, "selfplay": selfplay}))
    sounded = [Path(run_segment(g, tmp_path, segment).folder) / ALARMS_FILE for segment in (1, 2)]
    assert [sum(json.loads(line)["name"] == "repetition" for line in file.read_text().splitlines()) for file in sounded] == [0, 2]


def test_an_outage_sounds_its_own_alarm_and_none_about_the_policy(tmp_path):
    g = replace(game(), search=DownSearch(), config=CONFIG.model_copy(update={"health": CONFIG.health.model_copy(update={"window": 1})}))
    folder = Path(run_segment(g, tmp_path, 1).folder)
    assert {json.loads(line)["name"] for line in (folder / ALARMS_FILE).read_text().splitlines()} == {"dropped"}


def test_a_bound_of_null_is_no_alarm_and_both_roles_are_watched():
    assert alarms_at(Health(HealthSettings(window=1, least_valid_rate=None), {}), VALID, [0.0]) == []
    found = Health(HealthSettings(window=1), {}).look(4, {"solver/entropy": 0.5, "proposer/entropy": 0.001})
    assert [str(a) for a in found] == [
        "alarm entropy at step 4: proposer/entropy 0.001 is below 0.01: the policy hardly tries anything else any more"
    ]


def test_every_alarm_can_stop_a_run_and_has_a_bound():
    bounds = {name for name in HealthSettings.model_fields if name.startswith(("least_", "most_"))}
    assert sorted(bounds) == sorted(rule.bound for rule in RULES)
    assert HealthSettings(stop_on=[rule.name for rule in RULES]).stop_on == tuple(rule.name for rule in RULES)


def test_every_watched_metric_is_one_that_a_step_has(tmp_path):
    measured = run_segment(game(), tmp_path, 1)
    of_updates = {f"{role}/{name}" for role in ("solver", "proposer") for name in ("entropy", "kl")}  # an engine's; this one is scripted
    assert {m for rule in RULES for m in rule.metrics} - of_updates <= set(measured.metrics)


def played_for(steps: int, search: FailsAt, health: HealthSettings) -> SelfPlay:
    selfplay = FOUR.selfplay.model_copy(update={"steps_per_segment": steps})
    return replace(four(search), config=FOUR.model_copy(update={"selfplay": selfplay, "health": health}))


def alarms_of(played: SelfPlay, run_dir: Path) -> list[tuple[str, int]]:
    run_segment(played, run_dir, 1)
    lines = (run_dir / "segments/00001/attempt-1" / ALARMS_FILE).read_text().splitlines()
    return [(alarm["name"], alarm["step"]) for alarm in map(json.loads, lines)]


def test_an_outage_is_no_fault_of_the_policy(tmp_path):
    """All searches of three steps fail. That samples are dropped is all there is to say, and a run that stops for the policy goes on."""
    health = HealthSettings(window=3, stop_on=("valid_rate", "finished", "zero_variance", "distinct_questions"))
    assert alarms_of(played_for(3, FailsAt(*range(1, 100)), health), tmp_path) == [("dropped", 3)]


def test_a_step_without_groups_does_not_end_a_streak(tmp_path):
    """All games are won, in each step but the third: there the proposers' first search fails (the ninth), then that of the games
    from the pool (the tenth)."""
    played = played_for(4, FailsAt(9, 10), HealthSettings(window=3))
    played.engines[Role.SOLVER].script = lambda prompt, seed: solver(prompt, 1)
    assert [step for name, step in alarms_of(played, tmp_path) if name == "zero_variance"] == [4]


def test_repetition_counts_what_the_policy_wrote_twice():
    """Own tokens 1 2 3 4 1 2 3 4 have the runs 1234, 2341, 3412, 4123, 1234: one of five stood before."""
    own = [1, 2, 3, 4, 1, 2, 3, 4]
    assert repetition(SimpleNamespace(response_ids=own, response_mask=[1] * 8)) == pytest.approx(1 / 5)
    told = SimpleNamespace(response_ids=[1, 2, 9, 9, 9, 9, 3, 4], response_mask=[1, 1, 0, 0, 0, 0, 1, 1])
    assert repetition(told) == 0.0, "what the environment wrote does not count"
    assert repetition(SimpleNamespace(response_ids=[1, 1, 1], response_mask=[1, 1, 1])) == 0.0


def test_an_alarm_reaches_the_person_and_is_kept_beside_the_segment(tmp_path):
    """In this game half of the questions are the same nonsense, so that distinct ones are at most 3 of 4."""
    watched = CONFIG.model_copy(update={"health": HealthSettings(window=2, least_distinct_questions=0.9)})
    told: list[str] = []
    result = run_segment(game(config=watched), tmp_path, 1, lambda progress: told.extend(progress.alarms))
    assert len(told) == 1 and told[0].startswith("alarm distinct_questions at step 2: proposer/distinct_questions 0.")
    (kept,) = [json.loads(line) for line in (tmp_path / "segments/00001/attempt-1" / ALARMS_FILE).read_text().splitlines()]
    assert health_rows([kept])[0]["name"] == "distinct_questions" and ALARMS_FILE in result.files
    assert health_rows([])[0]["name"] == "no alarm"


def test_an_alarm_can_stop_the_run_and_nothing_of_its_segment_counts(tmp_path):
    health = HealthSettings(window=1, least_distinct_questions=0.9, stop_on=("distinct_questions",))
    with pytest.raises(UnhealthyRun, match="alarm distinct_questions at step 1.*health.stop_on in .*config.yaml"):
        run_segment(game(config=CONFIG.model_copy(update={"health": health})), tmp_path, 1)
    assert latest_complete_result(tmp_path, 1) is None
