"""Time left, by hand-computed numbers, with a clock that the test moves."""

from sesa_core.report.pace import Pace, clock_text, sparkline


class Hand:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_promised_before_a_step_was_timed():
    assert Pace(30, 0, {}, Hand()).left() is None


def test_steps_and_stages_that_are_to_come_are_added_up():
    hand = Hand()
    pace = Pace(steps=4, steps_done=0, remaining={"evaluate": 2, "boundary": 2}, clock=hand)
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


def test_steps_of_an_earlier_process_fill_the_bar_but_not_the_mean():
    hand = Hand()
    pace = Pace(steps=20, steps_done=10, remaining={}, clock=hand)
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
