"""Time left, by hand-computed numbers, with a clock that the test moves."""

import pytest

from sesa_core.report.pace import Pace, Work, clock_text, left_text, sparkline


class Hand:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_guesses_nothing_is_promised_before_a_step_was_timed():
    pace = Pace(Work(30, 0), Hand())
    assert pace.left() is None
    assert left_text(pace) == "?"


def test_steps_and_stages_that_are_to_come_are_added_up():
    hand = Hand()
    pace = Pace(Work(steps=4, steps_done=0, stages={"evaluate": 2, "boundary": 2}), clock=hand)
    pace.begin("evaluate")
    hand.now = 10  # the evaluation took 10 s, one more is to come
    pace.begin("train")
    hand.now = 13
    pace.step_done(1)
    hand.now = 18
    pace.step_done(2)  # steps of 3 and 5 s: two more take 8 s
    assert pace.left() == 2 * 4 + 1 * 10
    pace.begin("boundary")
    hand.now = 20
    pace.begin("train")  # the boundary took 2 s, one more is to come
    assert pace.left() == 2 * 4 + 10 + 2
    hand.now = 21
    assert pace.left() == 2 * 4 + 10 + 2 - 1, "the step in progress has already used a second"
    assert pace.elapsed() == 21


def test_the_stage_in_progress_counts_for_what_is_left_of_it():
    hand = Hand()
    pace = Pace(Work(steps=1, steps_done=0, stages={"evaluate": 2}), clock=hand)
    pace.begin("evaluate")
    hand.now = 10
    pace.begin("train")
    hand.now = 12
    pace.step_done(1)
    pace.begin("evaluate")  # the last stage, expected to take 10 s as the first did
    assert pace.left() == 10
    hand.now = 16
    assert pace.left() == 10 - 4
    hand.now = 22
    assert pace.left() == pytest.approx(1), "used up its 10 s: a tenth of what it took so far, not nothing"
    hand.now = 32
    assert pace.left() == pytest.approx(2)


def test_guesses_name_a_time_from_the_start_and_are_stretched_by_what_is_seen():
    hand = Hand()
    guesses = {"step": 2.0, "evaluate": 10.0, "boundary": 5.0}
    pace = Pace(Work(4, 0, {"evaluate": 2, "boundary": 1}, guesses), clock=hand)
    assert pace.left() == 4 * 2 + 2 * 10 + 5
    assert left_text(pace) == "~0:33"
    pace.begin("evaluate")
    hand.now = 4
    assert pace.left() == 4 * 2 + 10 + 5 + 6, "the evaluation in progress has used 4 of its 10 s"
    hand.now = 30  # it took 30 s, three times the guess
    pace.begin("train")
    assert pace.left() == 4 * 2 * 3 + 30 + 5 * 3, "steps and boundary were never seen: thrice their guess; the evaluation was"
    hand.now = 31
    pace.step_done(1)  # 1 s: seen 31 s, guessed 12 s
    assert pace.left() == pytest.approx(3 * 1 + 30 + 5 * 31 / 12)
    assert left_text(pace) == "0:45"


def test_what_a_run_turns_out_to_have_before_it_replaces_what_was_thought():
    hand = Hand()
    pace = Pace(Work(4, 0, {"evaluate": 2}, {"step": 2.0, "evaluate": 10.0}), clock=hand)
    pace.begin("start")
    pace.expect(Work(4, 3, {"evaluate": 1}, {"step": 2.0, "evaluate": 10.0}))
    assert (pace.steps_done, pace.left()) == (3, 2 + 10)


def test_steps_of_an_earlier_process_fill_the_bar_but_not_the_mean():
    hand = Hand()
    pace = Pace(Work(steps=20, steps_done=10), clock=hand)
    hand.now = 100
    pace.begin("train")
    hand.now = 102
    pace.step_done(11)
    assert pace.left() == 9 * 2


def test_clock_text():
    assert [clock_text(s) for s in (None, 0, 65, 7205.9)] == ["?", "0:00", "1:05", "2:00:05"]


def test_sparkline_spans_lowest_to_highest():
    assert sparkline([0, 0.5, 1]) == "▁▅█"
    assert sparkline([2, 2]) == "▄▄"
    assert sparkline([]) == ""
    assert len(sparkline(range(100), width=30)) == 30
