from dataclasses import replace

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
        (proposer_run("Who founded the city of SA\u0303O PAULO there?"), Rejection.ANSWER_LEAK),
        (proposer_run("Who foundedS\u00e3o Paulo there?"), Rejection.ANSWER_LEAK),
        (proposer_run("Who founded saopaulo there?"), Rejection.ANSWER_LEAK),
        (proposer_run("Did the war end in \uff11\uff19\uff10\uff15 or later?"), Rejection.ANSWER_LEAK),
        (proposer_run("Did the war end in 19\u200b05 or later?"), Rejection.ANSWER_LEAK),
        (proposer_run("Who founded the town of Paulo, not of Sao?"), None),
        (proposer_run(GOOD, passages=False), Rejection.NO_EVIDENCE),
        (proposer_run(GOOD, queries=("a",)), Rejection.TOO_FEW_SEARCHES),
        (proposer_run(GOOD, queries=("a", "A")), Rejection.TOO_FEW_SEARCHES),
        (proposer_run(GOOD, queries=("a", "b", "A")), Rejection.REPEATED_SEARCH),
        (proposer_run(GOOD, queries=("a", "b", "the war of 1905")), None),
    ],
)
def test_each_reason(run, expected):
    assert check_question(run, TARGET, SETTINGS) is expected


def test_a_number_inside_another_is_not_a_leak():
    assert check_question(proposer_run("What came five years after 1905?"), Target("t", "5", 2), SETTINGS) is None


def test_a_search_that_found_nothing_is_no_hop():
    """Two hops, two different searches, one of them in vain."""
    run = proposer_run(GOOD)
    in_vain = replace(run, turns=(replace(run.turns[0], passages=()), *run.turns[1:]))
    assert check_question(in_vain, TARGET, SETTINGS) is Rejection.TOO_FEW_SEARCHES


@pytest.mark.parametrize("query", ["treaty of 1905", "SAO paulo treaty", "\uff11\uff19\uff10\uff15"])
def test_searching_for_the_target_itself_can_be_forbidden(query):
    strict = ValidationSettings(forbid_target_in_query=True)
    assert check_question(proposer_run(GOOD, queries=("war", query)), TARGET, strict) is Rejection.TARGET_IN_QUERY
    assert check_question(proposer_run(GOOD, queries=("war", "19055")), TARGET, strict) is None


def test_of_several_reasons_the_first_one_counts():
    """One run after the other, each with one fault less than the one before; the order is that of SELFPLAY.md."""
    strict = ValidationSettings(forbid_target_in_query=True)
    leak, twice = "Was it 1905?", ("1905", "a", "A")
    runs = [
        proposer_run("1905?", queries=twice, passages=False, ending=Ending.TURN_LIMIT),
        proposer_run("1905?", queries=twice, passages=False),
        proposer_run(leak, queries=twice, passages=False),
        proposer_run(GOOD, queries=twice, passages=False),
        proposer_run(GOOD, queries=("1905", "1905")),
        proposer_run(GOOD, queries=twice),
        proposer_run(GOOD, queries=("1905", "a")),
        proposer_run(GOOD),
    ]
    held_out = {"in which year did treaty end war"}
    found = [check_question(run, TARGET, strict, recent_questions=[GOOD], held_out=held_out) for run in runs]
    assert found == [
        Rejection.NO_QUESTION,
        Rejection.LENGTH,
        Rejection.ANSWER_LEAK,
        Rejection.NO_EVIDENCE,
        Rejection.TOO_FEW_SEARCHES,
        Rejection.REPEATED_SEARCH,
        Rejection.TARGET_IN_QUERY,
        Rejection.NEAR_DUPLICATE,
    ]
    assert check_question(proposer_run(GOOD), TARGET, strict, held_out=held_out) is Rejection.EVAL_OVERLAP


def test_near_duplicates_and_evaluation_questions():
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=[GOOD.lower()]) is Rejection.NEAR_DUPLICATE
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=["What is the capital of Chad?"]) is None
    held_out = {"in which year did treaty end war"}
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, held_out=held_out) is Rejection.EVAL_OVERLAP


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ("In which year did one truce end that war?", None),  # 8 of 10 different words are shared: .8
        ("So in which year did one treaty end that war?", Rejection.NEAR_DUPLICATE),  # 9 of 10: .9, the threshold
    ],
)
def test_two_questions_are_the_same_from_nine_tenths_of_shared_words_on(earlier, expected):
    nine_words = proposer_run("In which year did one treaty end that war?")
    assert check_question(nine_words, TARGET, SETTINGS, recent_questions=[earlier]) is expected


def test_the_window_forgets():
    old = [GOOD] + [f"Question number {i} of many?" for i in range(200)]
    assert check_question(proposer_run(GOOD), TARGET, SETTINGS, recent_questions=old) is None


def test_word_bounds_can_be_off():
    chinese = proposer_run("\u8fd9\u5ea7\u57ce\u5e02\u662f\u54ea\u4e2a\u56fd\u5bb6\u7684\u9996\u90fd")  # 12 characters, no blank
    assert check_question(chinese, TARGET, ValidationSettings(min_words=0, max_words=0)) is None
    assert check_question(chinese, TARGET, SETTINGS) is Rejection.LENGTH, "one word where three are wanted"
    assert check_question(chinese, TARGET, ValidationSettings(min_words=0, max_words=0, min_chars=13)) is Rejection.LENGTH


@pytest.mark.parametrize(("words", "expected"), [(2, Rejection.LENGTH), (3, None), (80, None), (81, Rejection.LENGTH)])
def test_bounds_in_words(words, expected):
    assert check_question(proposer_run("wo " * (words - 1) + "what?"), TARGET, SETTINGS) is expected


@pytest.mark.parametrize(("chars", "expected"), [(7, Rejection.LENGTH), (8, None), (400, None), (401, Rejection.LENGTH)])
def test_bounds_in_characters(chars, expected):
    assert check_question(proposer_run("a b c" + "d" * (chars - 5)), TARGET, SETTINGS) is expected
