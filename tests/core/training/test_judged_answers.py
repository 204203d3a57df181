"""A step whose answers the judge may call right: over real HTTP, with the judge up, down, and down in the middle.

Four countries, as in `test_outages`. Chad's games all equal the reference; Mali's equal it or end in a malformed turn; Togo's and
Peru's name the reference among other words ("the togoian currency") or are wrong. So four claims stand open in a step, two of each
of the last two countries.
"""

import json
from dataclasses import replace

import pytest

from sesa_core.judge.server import create_app, running_server
from sesa_core.rollout.answers import AnswerJudge
from sesa_core.training.selfplay import SelfPlay
from sesa_core.training.step import StepRecord, play_step
from sesa_core.types import Role
from tests.core.training.test_outages import COUNTRIES, assert_nobody_gained, four, next_search, place
from tests.judge_support import Watched, judge_at, serving

HELPED = {"Togo", "Peru"}


def solver(prompt: str, seed: int) -> str:
    country = next(c for c in COUNTRIES if f"of {c}?" in prompt)
    right, odd = f"{country.lower()}ian", seed % 2
    endings = {
        "Chad": (f"<answer>{right}</answer>",) * 2,
        "Mali": (f"<answer>{right}</answer>", f"<answer>the {right} currency</answer><answer>the {right} currency</answer>"),
    }
    told = endings.get(country, (f"<answer>the {right} currency</answer>", "<answer>dollar</answer>"))
    return next_search(country, prompt) or told[odd]


def judged(url: str | None, concurrency: int = 1) -> SelfPlay:
    """A game whose answers the judge at `url` checks; None: exact match alone."""
    g = four()
    g.engines[Role.SOLVER].script = solver
    return replace(g, answer_judge=AnswerJudge(judge_at(url), concurrency, 10) if url else None)


def rewards(record: StepRecord) -> dict[str, set[tuple[str, float]]]:
    """By country: what was answered last, and what it earned."""
    return {
        group.problem.target.target_id: {(t.final or "", r) for t, r in zip(group.trajectories, group.rewards, strict=True)}
        for group in record.round.groups
    }


def undisturbed() -> StepRecord:
    with running_server() as url:
        return play_step(judged(url), 1)


def test_the_judges_verdict_turns_a_wrong_exact_match_into_a_reward():
    exact, record = play_step(judged(None), 1), undisturbed()
    assert rewards(exact)["Togo"] == {("the togoian currency", 0.0), ("dollar", 0.0)}
    assert rewards(record) == {
        "Chad": {("chadian", 1.0)},
        "Mali": {("maliian", 1.0), ("", 0.0)},
        "Togo": {("the togoian currency", 1.0), ("dollar", 0.0)},
        "Peru": {("the peruian currency", 1.0), ("dollar", 0.0)},
    }
    assert [record.metrics[f"solver/answers_{what}"] for what in ("judged", "judged_right", "undecided")] == [4, 2, 0]
    assert [exact.metrics[f"solver/answers_{what}"] for what in ("judged", "judged_right", "undecided")] == [0, 0, 0]
    assert record.metrics["seconds/judge_answers"] > 0 and "seconds/judge_answers" not in exact.metrics


def test_what_was_judged_right_is_no_failure_and_moves_the_pass_rate():
    record = undisturbed()
    answers = {f.problem_id: f.answer for f in record.evidence.failures}
    by_problem = {g.problem.problem_id: g for g in record.round.groups if g.problem.target.target_id in HELPED}
    assert {answers[p] for p in by_problem} == {"dollar"}
    for group in by_problem.values():
        assert group.pass_rate == sum(t.final != "dollar" for t in group.trajectories) / 4


def test_only_what_a_reward_hinges_on_is_asked_and_only_once():
    watched = Watched(create_app())
    with serving(watched) as url:
        play_step(judged(url, concurrency=8), 1)
    contents = [json.loads(body)["messages"][1]["content"] for body in watched.bodies]
    material = [json.loads(c.removeprefix("BEGIN MATERIAL\n").removesuffix("\nEND MATERIAL")) for c in contents]
    assert sorted((m["question"].rpartition(" ")[2], m["answer"]) for m in material) == [
        ("Peru?", "dollar"),
        ("Peru?", "the peruian currency"),
        ("Togo?", "dollar"),
        ("Togo?", "the togoian currency"),
    ], "nothing of Chad, where all equal the reference, nor of Mali, whose other games did not end with an answer"


@pytest.mark.parametrize("fault", ["error", "rate_limit", "reset", "prose", "refusal", "truncated"])
def test_the_judge_fails_in_the_middle_and_the_group_that_needed_it_is_dropped_with_its_question(fault):
    """The first two claims are those of one country and are answered; the third is not, the fourth is again."""
    with running_server(faults=f"ok*2,{fault},ok*") as url:
        g = judged(url)
        record = play_step(g, 1)
        (lost,) = HELPED - set(rewards(record))
        assert set(rewards(record)) == set(COUNTRIES) - {lost}, "who needed no help, and who had it, is kept"
        assert_lost(record, g, {lost})
        assert (record.metrics["solver/answers_judged"], record.metrics["solver/answers_undecided"]) == (3, 1)
        assert_next_step_is_as_ever(g)


def test_the_judge_is_down_for_a_whole_step_and_back_in_the_next():
    with running_server(faults="unavailable*4,ok*") as url:
        g = judged(url, concurrency=8)
        record = play_step(g, 1)
        assert set(rewards(record)) == {"Chad", "Mali"}
        assert_lost(record, g, HELPED)
        assert len(g.state.pool) == 2, "a problem without a pass rate is not remembered"
        assert_next_step_is_as_ever(g)


def assert_lost(record: StepRecord, g: SelfPlay, lost: set[str]) -> None:
    """Nobody who played for one of these countries earned anything, 0 included; everybody else what an undisturbed step pays."""
    assert_nobody_gained(record, g, undisturbed())
    posed = [p for p in record.proposals if p.problem is not None]
    assert {p.target.target_id for p in posed if p.problem.problem_id in record.round.dropped} == lost
    scored = {key[1] for key in record.scores}
    for proposal in posed:
        kept = proposal.target.target_id not in lost
        assert (place(proposal.trajectory) in record.scores) is kept and (proposal.problem.problem_id in scored) is kept
    assert record.metrics["solver/dropped/judge"] == record.metrics["solver/dropped_groups"] == len(lost)
    assert record.metrics["solver/dropped/search"] == record.metrics["proposer/dropped"] == 0
    assert not {f.question for f in record.evidence.failures} & {f"What is the currency of {c}?" for c in lost}


def assert_next_step_is_as_ever(g: SelfPlay) -> None:
    metrics = play_step(g, 2).metrics
    assert metrics["solver/dropped_groups"] == metrics["solver/answers_undecided"] == 0
    assert metrics["solver/problems"] == 4 and metrics["solver/answers_judged"] > 0
