"""Accuracy with a judge beside exact match, worked out by hand, and what an evaluation says whose judge is down."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from sesa_core.config.models import BankSettings, EvaluationSettings, RunConfig
from sesa_core.evaluation.judged import Mark, Marks, judged_accuracy
from sesa_core.evaluation.metrics import wilson_interval
from sesa_core.evaluation.runner import EvaluationReport, evaluate
from sesa_core.judge.server import create_app, running_server
from sesa_core.report.summary import evaluation_table, undecided_notes
from sesa_core.rollout.answers import AnswerJudge, Claim, Undecided
from tests.core.evaluation.test_runner import QUESTIONS, SNAPSHOT
from tests.core.rollout.test_loop import table
from tests.judge_support import Watched, judge_at, serving
from tests.support import DownSearch

A, B = Claim("q", ("r",), "a"), Claim("q", ("r",), "b")
RIGHT, WRONG, DROPPED, ASKED_A, ASKED_B = Mark(1.0), Mark(0.0), Mark(None), Mark(0.0, A), Mark(0.0, B)


def test_with_every_answer_decided_it_is_one_number():
    """Greedy: right, judged right, judged wrong, wrong, one dropped: 2 of 4. Samples: 1/2 of the first question, 1 of the second."""
    marks = Marks((RIGHT, ASKED_A, ASKED_B, WRONG, DROPPED), ((ASKED_A, WRONG), (RIGHT, DROPPED), (), (), ()))
    judged = judged_accuracy(marks, {A: True, B: False})
    assert (judged.greedy, judged.greedy_bounds, judged.greedy_interval) == (0.5, (0.5, 0.5), wilson_interval(2, 4))
    assert judged.outcomes == (1.0, 1.0, 0.0, 0.0, None)
    assert (judged.sampled, judged.sampled_bounds) == (0.75, (0.75, 0.75))
    assert judged.sampled_outcomes == (0.5, 1.0, None, None, None)
    assert (judged.undecided, judged.cause) == (0, "")


def test_an_undecided_answer_is_neither_wrong_nor_left_out():
    """Left out, accuracy would be 1 of 2; counted wrong, 1 of 3. It lies between 1 and 2 of 3."""
    judged = judged_accuracy(Marks((RIGHT, ASKED_A, WRONG), ((ASKED_A, RIGHT), (RIGHT, RIGHT), (WRONG, WRONG))), {A: Undecided("down")})
    assert (judged.greedy, judged.greedy_interval, judged.greedy_bounds) == (None, None, (pytest.approx(1 / 3), pytest.approx(2 / 3)))
    assert judged.outcomes == (1.0, None, 0.0)
    assert (judged.sampled, judged.sampled_bounds) == (None, (pytest.approx(1.5 / 3), pytest.approx(2 / 3)))
    assert judged.sampled_outcomes == (None, 1.0, 0.0)
    assert (judged.undecided, judged.cause) == (2, "down")


def test_where_only_samples_are_undecided_greedy_accuracy_is_known():
    judged = judged_accuracy(Marks((RIGHT,), ((ASKED_A,),)), {A: Undecided("down")})
    assert (judged.greedy, judged.sampled, judged.sampled_bounds) == (1.0, None, (0.0, 1.0))


def test_without_samples_there_is_nothing_sampled():
    judged = judged_accuracy(Marks((ASKED_A,), ((),)), {A: True})
    assert (judged.greedy, judged.sampled, judged.sampled_bounds, judged.sampled_outcomes) == (1.0, None, None, (None,))


# -- whole evaluations


def wordy(prompt: str, seed: int) -> str:
    """Equals the reference about Chad, names it among other words about Mali, is wrong about Togo."""
    return f"<answer>{'hymn' if 'Chad' in prompt else 'their song of old' if 'Mali' in prompt else 'dry'}</answer>"


def measure(url: str | None, script=wordy, samples: int = 0, arms=("off",), **parts) -> EvaluationReport:
    bank = BankSettings(top_k=1, card_style="compact")
    config = RunConfig(evaluation=EvaluationSettings(arms=arms, samples=samples, split="test"), bank=bank)
    judge = AnswerJudge(judge_at(url), 1, 10) if url else None
    return evaluate(QUESTIONS, table(script, **parts), SNAPSHOT if len(arms) > 1 else None, config, answer_judge=judge)


def test_exact_match_and_judged_accuracy_stand_apart():
    with running_server() as url:
        arm = measure(url).arms["off"]
    assert (arm.greedy, arm.outcomes) == (pytest.approx(1 / 3), (1.0, 0.0, 0.0))
    assert (arm.judge.greedy, arm.judge.outcomes) == (pytest.approx(2 / 3), (1.0, 1.0, 0.0))
    assert measure(None).arms["off"] == replace(arm, judge=None), "exact match is what it is without a judge"


def test_an_answer_is_asked_about_once_in_all_arms_and_samples():
    watched, told = Watched(create_app()), []
    config = RunConfig(evaluation=EvaluationSettings(samples=2), bank=BankSettings(top_k=1, card_style="compact"))
    with serving(watched) as url:
        report = evaluate(QUESTIONS, table(wordy), SNAPSHOT, config, told.append, AnswerJudge(judge_at(url), 8, 10))
    assert len(watched.bodies) == 2, "one about Mali, one about Togo"
    assert told == ["greedy", "sampled", "judge"]
    assert [(a.judge.greedy, a.judge.sampled) for a in report.arms.values()] == [(pytest.approx(2 / 3),) * 2] * 3


def test_games_without_a_countable_answer_are_wrong_and_dropped_ones_are_left_out_without_being_asked_about():
    def script(prompt: str, seed: int) -> str:
        if "Chad" in prompt:
            return "<answer>a hymn of theirs</answer><answer>a hymn of theirs</answer>"
        return "<search>Mali</search>" if "Mali" in prompt else "no answer at all"

    watched = Watched(create_app())
    with serving(watched) as url:
        arm = measure(url, script, search=DownSearch()).arms["off"]
    assert not watched.bodies
    assert (arm.judge.outcomes, arm.judge.greedy, arm.dropped) == ((0.0, None, 0.0), 0.0, 1)


def test_an_evaluation_whose_judge_is_down_says_so_and_counts_nobody_as_wrong():
    with running_server(faults="unavailable*") as url:
        report = measure(url, samples=1)
    arm = report.arms["off"]
    assert (arm.greedy, arm.judge.greedy, arm.judge.greedy_bounds) == (pytest.approx(1 / 3), None, (pytest.approx(1 / 3), 1.0))
    assert arm.judge.undecided == 4 and arm.judge.cause.startswith("judge at ")
    shown = printed({"before": report.as_dict()})
    assert "bank off, judged   33.3% to 100.0%" in shown
    assert "before: 4 answers are not judged (judge at " in shown and "lies between the two numbers" in shown


def test_the_table_has_a_row_for_each_rule_and_no_note_where_all_is_judged():
    with running_server() as url:
        report = measure(url, samples=1)
    low, high = wilson_interval(2, 3)
    rows = [" ".join(line.split()) for line in printed({"before": report.as_dict()}).splitlines()]
    assert f"bank off, judged 66.7% ± {(high - low) * 50:.1f} 66.7%" in rows
    assert len(rows) == 3, "titles, exact match, judged"


def test_an_evaluation_of_before_there_was_a_judge_stands_beside_one_with():
    with running_server() as url:
        after = measure(url).as_dict()
    before = measure(None).as_dict()
    del before["arms"]["off"]["judge"]
    judged = next(line for line in printed({"before": before, "after": after}).splitlines() if "judged" in line)
    assert judged.split()[3:5] == ["-", "-"] and "66.7%" in judged


def printed(evaluations: dict) -> str:
    out = StringIO()
    console = Console(file=out, width=200)
    console.print(evaluation_table(evaluations))
    for note in undecided_notes(evaluations):
        console.print(note, markup=False)
    return out.getvalue()
