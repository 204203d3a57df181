"""What a display is told to expect, counted by hand, and what a flow run's log says without a terminal."""

import json
import logging

import pytest

from flows.commands.run import next_commands, places
from flows.reporting import evaluation_work, expected_work, flow_display, most_that_judging_uses
from sesa_core.config.load import load_config
from sesa_core.report.pace import Work
from sesa_core.training.run_folder import RunFolder, create_run
from sesa_core.training.step import Progress
from tasks.evaluation import evaluation_due


def config(tmp_path, *overrides: str):
    few = ["selfplay.segments=4", "selfplay.steps_per_segment=10", "evaluation.every_segments=2", *overrides]
    return load_config(overrides=few, values={"runs_dir": str(tmp_path)})


@pytest.mark.parametrize(("every", "due"), [(0, [0, 5]), (2, [0, 2, 4, 5]), (5, [0, 5])])
def test_evaluations_are_due_at_both_ends_and_every_so_many_segments(every, due, tmp_path):
    settings = config(tmp_path, "selfplay.segments=5", f"evaluation.every_segments={every}")
    assert [k for k in range(6) if evaluation_due(settings, k)] == due


def test_a_new_run_has_everything_before_it(tmp_path):
    run = create_run(config(tmp_path))
    work = expected_work(run.config(), run)
    assert (work.steps, work.steps_done) == (40, 0)
    assert work.stages == {"evaluate greedy": 3, "evaluate sampled": 3, "distil": 4, "boundary": 4}
    assert set(work.guesses) == {"step", *work.stages}


def test_a_resumed_run_has_less_and_what_was_measured_does_not_come_again(tmp_path):
    run = create_run(config(tmp_path))
    work = expected_work(run.config(), run, committed=2)
    assert (work.steps, work.steps_done) == (40, 20)
    assert work.stages == {"evaluate greedy": 2, "evaluate sampled": 2, "distil": 2, "boundary": 2}, "2 was due and is not on file"
    run.evaluation_file(2).parent.mkdir()
    run.evaluation_file(2).write_text(json.dumps({}))
    assert expected_work(run.config(), run, committed=2).stages["evaluate greedy"] == 1


def test_before_the_bank_is_open_the_folder_says_how_far_a_run_is(tmp_path):
    run = create_run(config(tmp_path))
    for segment in (1, 2, 3):  # the third was begun, so two were committed
        (run.segment_dir(segment) / "attempt-1").mkdir(parents=True)
    assert expected_work(run.config(), run).steps_done == 20


def test_guesses_grow_with_what_there_is_to_play(tmp_path):
    run = create_run(config(tmp_path, "evaluation.questions=200", "evaluation.samples=2", "evaluation.arms=[off]"))
    guesses = expected_work(run.config(), run).guesses
    assert guesses["evaluate sampled"] == pytest.approx(2 * guesses["evaluate greedy"])
    assert guesses["step"] == pytest.approx((8 * 4 + 32 * 8) * 0.03)
    alone = evaluation_work(config(tmp_path, "evaluation.samples=0"))
    assert (alone.steps, alone.stages) == (0, {"evaluate greedy": 1, "evaluate sampled": 0})


def test_a_flow_run_without_a_terminal_says_how_long_it_still_takes(caplog):
    display = flow_display(logging.getLogger("flow"))
    display.expect(Work(4, 0, {"evaluate greedy": 1}, {"step": 30.2, "evaluate greedy": 60.0}))
    with caplog.at_level(logging.INFO):
        display.stage("evaluate greedy", "segment 0 of 2")
        display.stage("train", "segment 1 of 2")
        display.progress(Progress(1, 2, 1, 4, "step done", {"solver/reward": 0.5}))
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "segment 0 of 2, left ~3:00"
    assert all("left" in line and "left ?" not in line for line in said)


def test_the_printed_commands_and_places_are_those_of_this_run(tmp_path, monkeypatch):
    run = create_run(config(tmp_path / "my runs", "seed=4", "bank.uri=s3://cards/first"), "first")
    assert places(run)["bank"] == "s3://cards/first"
    where = f" --runs-dir '{tmp_path / 'my runs'}'"
    assert next_commands(run) == [
        f"sesa bank list --run first{where}",
        f"sesa eval --run first{where}",
        f"sesa run --config '{run.config_file}' --set seed=5{where}",
    ]
    monkeypatch.chdir(tmp_path)
    usual = create_run(config("runs"), "first")
    assert next_commands(usual)[1] == "sesa eval --run first"
    assert places(RunFolder(usual.path))["bank"] == usual.path / "bank"


def test_what_a_run_may_ask_of_a_judge_is_told_beforehand(tmp_path):
    """Two of four segments are left, with 30 failures each and 1,500 tokens of reply for a failure."""
    work = Work(steps=40, steps_done=20)
    assert most_that_judging_uses(config(tmp_path), work) is None, "the built-in judge costs nothing"
    outside = ("judge.base_url=https://host/v1", "judge.model=m", "queue.per_boundary=30", "judge.max_tokens=1500")
    said = most_that_judging_uses(config(tmp_path, *outside), work)
    assert said == "m at https://host/v1: at most 60 calls and 90,000 tokens of replies, and the prompts"
    priced = ("judge.price_completion=10", "judge.cost_budget=0.5", "judge.token_budget=50000")
    said = most_that_judging_uses(config(tmp_path, *outside, *priced), work)
    assert said.endswith("(a cost of 0.90), and the prompts, within judge.token_budget 50,000 and judge.cost_budget 0.50")


def test_the_calls_about_questions_are_told_too(tmp_path):
    """Twenty steps of 3 x 2 questions, each asked about twice at most: 240 calls beside the 60 about failures."""
    outside = ("judge.base_url=https://host/v1", "judge.model=m", "queue.per_boundary=30", "validation.verifier=judge")
    played = ("selfplay.targets=3", "selfplay.proposals_per_target=2")
    for enabled, calls in ((True, 300), (False, 240)):
        said = most_that_judging_uses(config(tmp_path, *outside, *played, f"distill.enabled={str(enabled).lower()}"), Work(40, 20))
        assert f"at most {calls} calls" in said
    once = config(tmp_path, *outside, *played, "distill.enabled=false", "validation.closed_book=false")
    assert "at most 120 calls" in most_that_judging_uses(once, Work(40, 20))


def test_the_calls_about_answers_are_told_too(tmp_path):
    """Twenty steps of 2 x 2 x 5 answers, and two evaluations of 10 questions in two arms, each with a greedy answer and 3 samples."""
    outside = ("judge.base_url=https://host/v1", "judge.model=m", "distill.enabled=false", "rollout.answer_check=judge")
    played = ("selfplay.targets=2", "selfplay.proposals_per_target=2", "selfplay.problems=3", "selfplay.solver_group=5")
    measured = ("evaluation.questions=10", "evaluation.arms=[off,on]", "evaluation.samples=3")
    work = Work(40, 20, {"evaluate greedy": 2})
    answers = 20 * 4 * 5 + 2 * 10 * 2 * 4
    assert f"at most {answers} calls" in most_that_judging_uses(config(tmp_path, *outside, *played, *measured), work)
    for verifier, asked_too in (("solver", 2), ("judge", 4)):
        calls = answers + asked_too * 20 * 4  # with the evidence and without; the judge also gives those answers
        said = most_that_judging_uses(config(tmp_path, *outside, *played, *measured, f"validation.verifier={verifier}"), work)
        assert f"at most {calls} calls" in said
