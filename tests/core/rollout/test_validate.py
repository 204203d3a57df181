import pytest

from sesa_core.config.models import ValidationSettings
from sesa_core.rollout.validate import Rejection, check_question
from sesa_core.types import Ending, Passage, Role, Target, Trajectory, Turn, TurnKind

TARGET = Target("t1", "1905", 2, aliases=("São Paulo",))
SETTINGS = ValidationSettings()


def proposer_run(question: str | None, queries=("a", "b"), passages=True, ending=Ending.FINISHED) -> Trajectory:
    found = (Passage("x", "x", "text"),) if passages else ()
    turns = [Turn(TurnKind.SEARCH, q, found) for q in queries]
    if question is not None:
        turns.append(Turn(TurnKind.QUESTION, question))
    return Trajectory(Role.PROPOSER, "t1", 0, "", (1,), (2,), (1,), (0.0,), tuple(turns), ending)


GOOD = "In which year did the treaty end the war?"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (proposer_run(GOOD), None),
        (proposer_run(None, ending=Ending.MALFORMED), Rejection.NO_QUESTION),
        (proposer_run("Who is"), Rejection.LENGTH),
        (proposer_run("word " * 81), Rejection.LENGTH),
        (proposer_run("Did the war end in 1905 or later?"), Rejection.ANSWER_LEAK),
        (proposer_run("Who founded the city of sao paulo there?"), Rejection.ANSWER_LEAK),
        (proposer_run(GOOD, passages=False), Rejection.NO_EVIDENCE),
        (proposer_run(GOOD, queries=("a",)), Rejection.TOO_FEW_SEARCHES),
        (proposer_run(GOOD, queries=("a", "b", "A")), Rejection.REPEATED_SEARCH),
    ],
)
def test_each_reason(run, expected):
    assert check_question(run, TARGET, SETTINGS) is expected


def test_a_number_inside_another_is_not_a_leak():
    assert check_question(proposer_run("What came five years after 1905?"), Target("t", "5", 2), SETTINGS) is None


def test_near_duplicates_and_evaluation_questions():
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=[GOOD.lower()]) is Rejection.NEAR_DUPLICATE
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=["What is the capital of Chad?"]) is None
    held_out = {"in which year did treaty end war"}
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, held_out=held_out) is Rejection.EVAL_OVERLAP


def test_the_window_forgets():
    old = [GOOD] + [f"Question number {i} of many?" for i in range(200)]
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=old) is None


def test_word_bounds_can_be_off():
    settings = ValidationSettings(min_words=0, max_words=0)
    assert check_question(proposer_run("这座城市是哪个国家的首都"), TARGET, settings) is None
