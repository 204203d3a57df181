"""What a failure is worth, and which leave when the queue is full."""

import itertools
import math

import pytest

from sesa_core.bank.queue import PendingFailure, by_priority, fit, priority, recurring_words, resemblance, select
from sesa_core.config.load import load_config
from sesa_core.config.models import QueueSettings
from sesa_core.types import Passage
from tests.bank_support import failure, shown

SETTINGS = QueueSettings(capacity=2, min_pending=2, per_boundary=2, long_evidence_words=5, unsolved_bonus=12.0)
SIX_WORDS = (Passage("p", "t", "one two three"), Passage("q", "t", "four five six"))


@pytest.mark.parametrize(
    ("changes", "worth"),
    [
        ({"pass_rate": 1.0}, 0.0),
        ({"pass_rate": 0.0}, 12.0),
        ({"pass_rate": 1.0, "shown_cards": (shown("c"),)}, 10.0),
        ({"pass_rate": 1.0, "failed_count": 2}, 5.0),
        ({"pass_rate": 1.0, "evidence": SIX_WORDS}, 3.0),
        ({"pass_rate": 0.5}, 2.0),
        ({"pass_rate": 0.25}, 1.5),
        ({"shown_cards": (shown("c"),), "failed_count": 3, "evidence": SIX_WORDS, "pass_rate": 0.5}, 20.0),
    ],
)
def test_priority_adds_up(changes, worth):
    fields = {"evidence": (Passage("p", "t", "short"),), "pass_rate": 0.0} | changes
    assert priority(failure("f", **fields), SETTINGS) == pytest.approx(worth)


def test_the_published_priorities_know_neither_bonus():
    published = load_config("paper", None, []).queue
    assert priority(failure("f", pass_rate=0.0), published) == 0.0
    assert priority(failure("f", pass_rate=0.5, failed_count=2, shown_cards=(shown("c"),)), published) == 15.0


def test_one_pass_asks_for_different_lessons():
    questions = ["What is the anthem of Chad?", "Name the anthem of Mali.", "Name the climate of Togo.", "What is the climate of Peru?"]
    waiting = [PendingFailure(failure(f"f{i}", question=q)) for i, q in enumerate(questions)]
    assert [p.failure.failure_id for p in select(waiting, SETTINGS)] == ["f0", "f2"]
    plain = SETTINGS.model_copy(update={"repeat_penalty": 0.0})
    assert [p.failure.failure_id for p in select(waiting, plain)] == ["f0", "f1"]


def test_resemblance_by_hand():
    # of four questions "anthem" and "climate" stand in two each: weight log 2; "name" and "what" and "is" too; names drop out
    words = recurring_words(["What is anthem of Chad", "Name anthem of Mali", "Name climate of Togo", "What is climate of Peru"])
    assert set(words[0]) == {"what", "is", "anthem", "of"} and words[0]["of"] == 0.0
    assert words[0]["anthem"] == pytest.approx(math.log(2))
    assert resemblance(words[0], words[1]) == pytest.approx(1 / 4)  # anthem of {what, is, anthem, name}
    assert resemblance(words[0], words[2]) == 0.0
    assert resemblance({}, {}) == 0.0


def test_equal_worth_is_decided_by_age_then_id_and_never_by_arrival():
    old, young_a, young_b = (PendingFailure(failure(n, step=s)) for n, s in (("z", 1), ("a", 2), ("b", 2)))
    best = PendingFailure(failure("y", step=9, failed_count=2))
    for arrived in itertools.permutations([young_b, old, best, young_a]):
        assert by_priority(arrived, SETTINGS) == [best, old, young_a, young_b]


def test_too_few_wait_until_there_are_enough():
    one, two, three = (PendingFailure(failure(n)) for n in "abc")
    assert select([one], SETTINGS) == []
    assert select([three, two, one], SETTINGS) == [one, two]


def test_the_least_informative_leaves_not_the_oldest():
    old, rich, poor = (
        PendingFailure(failure("a", step=1, failed_count=2)),
        PendingFailure(failure("b", step=2, failed_count=2)),
        PendingFailure(failure("c", step=1)),
    )
    assert fit([poor, rich, old], SETTINGS) == ([old, rich], [poor])
