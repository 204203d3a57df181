"""An ablation in numbers small enough to work out by hand: four questions, three seeds, two arms."""

from dataclasses import replace

import pytest

from sesa_core.config.load import load_config
from sesa_core.errors import ConfigError
from sesa_core.evaluation.ablation.arms import ARMS, FULL, Arm, choose_arms, matched, parse_arm, require_same_measure
from sesa_core.evaluation.ablation.cells import Accuracy, Cell, CellResult, read_result
from sesa_core.evaluation.ablation.document import Experiment, document
from sesa_core.evaluation.metrics import mean_interval, student_t95

SETTINGS = ("evaluation.questions=4", "evaluation.samples=0", "evaluation.arms=[off, on]")
PLAIN = Arm("plain", ("optim.lr=1e-5",), "a slower one")


def right(count: int) -> Accuracy:
    """The first `count` of four questions are answered."""
    return Accuracy(count / 4, tuple(float(i < count) for i in range(4)))


def result(off: tuple[int, int], on: tuple[int, int]) -> CellResult:
    """Right answers before and after, bank off and on."""
    before, after = ({("off", "greedy"): right(off[i]), ("on", "greedy"): right(on[i])} for i in (0, 1))
    return CellResult(before, after, {"cards written": 3.0}, {"steps": 60.0})


def cells() -> list[Cell]:
    return [
        Cell(FULL, 0, "done", result(off=(1, 1), on=(1, 3))),
        Cell(FULL, 1, "done", result(off=(1, 2), on=(1, 3))),
        Cell(FULL, 2, "done", result(off=(1, 3), on=(1, 3))),
        Cell("plain", 0, "done", result(off=(1, 0), on=(1, 3))),
        Cell("plain", 1, "failed: the disk | is full"),
        Cell("plain", 2, "broken off, step 23/60"),
    ]


def written(rows: list[Cell], **more) -> str:
    config = load_config(overrides=SETTINGS)
    settings = {"command": "sesa ablate", "config": config, "arms": [ARMS[FULL], PLAIN], "cells": rows, "unmatched": {}} | more
    return document(Experiment(**settings))


def section(text: str, title: str) -> list[str]:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.7062), (4, 2.7764), (9, 2.2622), (10, 2.2281), (30, 2.0423), (100, 1.9840)])
def test_students_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_t95(freedom) == pytest.approx(quantile, abs=2e-4)


def test_a_mean_over_seeds_has_students_interval():
    """1, 2, 3, 4: mean 2.5, standard deviation 1.290994, so half = 3.182446 * 1.290994 / 2 = 2.054260."""
    assert mean_interval([1, 2, 3, 4]) == pytest.approx((2.5, 0.445740, 4.554260), abs=1e-5)
    assert mean_interval([0.3]) == (0.3, float("-inf"), float("inf")), "of one seed alone nothing is known"


def test_accuracy_after_training_is_a_mean_over_seeds_with_its_interval():
    """Off: 25, 50, 75 percent, so 50 +- 4.302653 * 25 / sqrt(3) = 62.1; on - off: 50, 25, 0 points."""
    rows = section(written(cells()), "Accuracy, greedy")
    assert "| `full` | 3 | 50.0 (-12.1 to 112.1) | 75.0 (75.0 to 75.0) | +25.0 (-37.1 to +87.1) |" in rows
    assert "| `plain` | 1 | 0.0 | 75.0 | +75.0 |" in rows, "one seed has no interval"


def test_where_a_judge_rewards_answers_the_document_says_that_it_measures_without_it():
    judged = load_config(overrides=[*SETTINGS, "rollout.answer_check=judge"])
    assert "greedy, by exact match whatever the judge says of an answer, with" in written(cells(), config=judged)
    assert "judge" not in written(cells())


def test_gains_and_differences_to_full_are_paired_by_seed():
    """Full's gains off: 0, 25, 50. Plain has seed 0 alone: 0 against full's 25 with bank off, 75 against 75 with it on."""
    rows = section(written(cells()), "Accuracy, greedy")
    assert "| `full` | 3 | +25.0 (-37.1 to +87.1) | +50.0 (+50.0 to +50.0) | – | – |" in rows
    assert "| `plain` | 1 | -25.0 | +50.0 | -25.0 | +0.0 |" in rows


def test_every_cell_that_got_worse_is_listed_with_its_numbers():
    """One of four questions was lost: differences -1, 0, 0, 0, so -25 +- 1.96 * 50 / 2."""
    lines = section(written(cells()), "Every cell that got worse")
    listed = "| `plain` | 0 | off | greedy | 25.0 | 0.0 | -25.0 (-74.0 to +24.0) |"
    assert lines.count(listed) == 2, "below its own start, and below full"
    assert "1 of 8 comparisons lie below its own start:" in lines
    assert "1 of 2 comparisons lie below `full` with the same seed, after training:" in lines


def test_where_nothing_got_worse_it_says_so():
    lines = section(written(cells()[:3]), "Every cell that got worse")
    assert "0 of 6 comparisons lie below its own start." in lines
    assert "0 of 0 comparisons lie below `full` with the same seed, after training." in lines


def test_cells_that_are_missing_are_named_and_in_no_mean():
    text = written(cells())
    assert "4 of 6 cells are done" in text
    assert section(text, "Cells that are missing")[-2:] == [
        "| `plain` | 1 | failed: the disk \\| is full |",
        "| `plain` | 2 | broken off, step 23/60 |",
    ]
    assert "Cells that are missing" not in written(cells()[:4])


def test_a_document_can_be_written_before_any_cell_is_done():
    text = written([Cell(FULL, 0, "waiting")])
    assert "| `full` | 0 | – | – | – |" in text


def test_each_cell_shows_its_move_and_what_the_bank_adds():
    """On against off, question by question, in seed 0 of full: 0, 1, 1, 0 points: 50 +- 1.96 * 57.735 / 2 = 56.6."""
    rows = section(written(cells()), "Every cell")
    assert "| `full` | 0 | 25.0 → 25.0 | 25.0 → 75.0 | +50.0 (-6.6 to +106.6) |" in rows


def test_an_arm_whose_steps_are_another_size_is_named():
    text = written(cells(), unmatched={FULL: [], "plain": ["selfplay.problems"]})
    assert "`plain` changes `selfplay.problems`." in text
    assert "are set alike in all arms" in written(cells())


def step(number: int, **more: float) -> dict[str, float]:
    row = {
        "step": number,
        "solver/frontier_share": 0.5,
        "solver/pass_rate": 0.5,
        "proposer/valid_rate": 0.75,
        "bank/cards_per_question": number,
    }
    row |= {"proposer/posed": 8, "proposer/dropped": 1, "proposer/response_tokens": 20, "solver/problems": 4}
    return row | {"solver/problems_from_pool": 1, "solver/response_tokens": 10, "solver/dropped_groups": 0, "solver/groups/rows": 6} | more


def report() -> dict:
    arm = {"greedy": 0.5, "outcomes": [1.0, 0.0], "sampled": None, "sampled_outcomes": [None, None]}
    ends = {"0": {"arms": {"off": arm}}, "10": {"arms": {"off": arm | {"greedy": 1.0}}}, "9": {"arms": {"off": arm}}}
    return {"evaluations": ends, "cards": {"written": 3, "refused": 2, "evicted": 1}}


def test_a_runs_files_come_to_the_numbers_of_a_cell():
    """Step 1 was played twice: the later attempt counts. Tokens: (8 - 1) * 20 + 4 * 5 * 10 = 340 a step."""
    rows = [step(1, **{"solver/frontier_share": 0.0}), step(1), step(2, **{"solver/frontier_share": 1.0, "solver/dropped_groups": 2})]
    read = read_result(report(), rows, solver_group=5)
    assert read.before["off", "greedy"] == Accuracy(0.5, (1.0, 0.0))
    assert read.after["off", "greedy"].mean == 1.0, "segment 10 is the last one, not 9"
    assert ("off", "sampled") not in read.after, "what was not asked for is not there"
    assert read.play["frontier share, first 10 steps"] == 0.75
    assert read.play["cards per question, last 10 steps"] == 1.5
    assert read.play["cards refused"] == 2
    assert (read.work["steps"], read.work["proposer rollouts"], read.work["solver rollouts"]) == (2, 16, 40)
    assert (read.work["tokens sampled"], read.work["dropped"]) == (680, 2 + 2 * 5)
    assert read.work["proposer rollouts trained on"] == 0, "a frozen proposer has no such metric"


def test_a_metric_that_a_step_does_not_have_is_in_no_mean():
    """In step 1 search was down. Tokens: 0, and (8 - 1) * 20 + 4 * 5 * 10 = 340. In the other run no step has a frontier."""
    lost = {name: value for name, value in step(1).items() if not name.endswith(("share", "rate", "response_tokens"))}
    lost |= {"proposer/dropped": 8, "solver/problems": 0}
    read = read_result(report(), [lost, step(2, **{"proposer/valid_rate": 0.25})], solver_group=5)
    assert read.play["valid rate, first 10 steps"] == read.play["valid rate, last 10 steps"] == 0.25
    assert (read.work["tokens sampled"], read.work["steps"]) == (340, 2)
    none = read_result(report(), [lost], solver_group=5)
    assert none.play["frontier share, first 10 steps"] is None
    rows = [Cell(FULL, seed, "done", replace(result((1, 1), (1, 1)), play=r.play)) for seed, r in enumerate((none, read))]
    assert "| valid rate, first 10 steps | 0.25 | – |" in section(written(rows), "What was played")
    assert "| valid rate, first 10 steps | – | – |" in section(written(rows[:1]), "What was played")


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_that_ships_is_matched_and_measured_like_the_whole(name):
    full, changed = load_config(), load_config(overrides=ARMS[name].changes)
    require_same_measure(ARMS[name], changed, full)
    assert matched(changed, full) == []
    assert (changed == full) == (name == FULL)


def test_the_baseline_has_no_cards_from_anywhere():
    ssp = load_config(overrides=["bank.warm_start_path=cards.jsonl", *ARMS["ssp"].changes])
    assert not ssp.bank.enabled and not ssp.distill.enabled
    assert ssp.bank.seed_path is None and ssp.bank.warm_start_path is None


def test_an_arm_of_ones_own_may_hold_lists():
    arm = parse_arm("short:targets.hops=[1, 2],optim.lr=1e-3")
    assert (arm.name, arm.changes) == ("short", ("targets.hops=[1, 2]", "optim.lr=1e-3"))
    config = load_config(overrides=arm.changes)
    assert (config.targets.hops, config.optim.lr) == ((1, 2), 0.001)


def test_an_arm_that_changes_the_size_of_a_step_is_seen():
    assert matched(load_config(overrides=["selfplay.problems=5"]), load_config()) == ["selfplay.problems"]


def test_arms_are_chosen_by_name_and_own_ones_follow():
    chosen = choose_arms("ssp,full", ["hot:optim.lr=1e-3"])
    assert [a.name for a in chosen] == ["ssp", "full", "hot"]
    assert [a.name for a in choose_arms(None, [])] == list(ARMS)


@pytest.mark.parametrize(
    ("names", "own", "says"),
    [
        ("ful", [], "--arms: 'ful' is not allowed; the arms are full, "),
        ("full,full", [], "it names an arm twice"),
        (None, ["hot"], "write name:key=value"),
        (None, ["hot:optim.lr"], "write name:key=value"),
        (None, ["Hot!:optim.lr=1"], "write name:key=value"),
        (None, ["hot:optim.lr=1", "hot:optim.lr=2"], "two arms are called hot"),
        (None, ["full:optim.lr=1"], "full is an arm that ships"),
        (None, ["hot:seed=3"], "set it with --seeds"),
    ],
)
def test_arms_that_cannot_be_are_refused(names, own, says):
    with pytest.raises(ConfigError) as refusal:
        choose_arms(names, own)
    assert says in str(refusal.value)


def test_an_arm_may_not_be_measured_in_another_way():
    easy = parse_arm("easy:evaluation.questions=3")
    with pytest.raises(ConfigError, match="evaluation.* is the same in all arms"):
        require_same_measure(easy, load_config(overrides=easy.changes), load_config())
