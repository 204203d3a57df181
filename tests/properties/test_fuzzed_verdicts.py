"""Whatever a judge says of an answer, no number and no truth value is read that it does not say."""

import json
import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.judge.base import ReplyState
from sesa_core.judge.replies import parse_verdict
from sesa_core.rng import stream
from tests.fuzz_support import TEXTS, Step, judged, pick
from tests.judge_support import completion

RIGHT, WRONG = ("correct", "yes", "true", "right", "equivalent"), ("incorrect", "no", "false", "wrong", "not equivalent", "not correct")
KEYS = ("score", "verdict", "correct", "equivalent")
# what a judge may put there, and what it means by it; None: nothing that is a score
MEANT: tuple[tuple[object, float | None], ...] = (
    *((0.1, 0.1), (".1", 0.1), ("0.1", 0.1), ("0.25.", 0.25), (" 1. ", 1.0), ("1", 1.0), (0, 0.0), ("0.0", 0.0), (True, 1.0), (False, 0.0)),
    *(("true", 1.0), ("FALSE", 0.0), ("Incorrect!", 0.0), ("**correct**", 1.0), ("'wrong'.", 0.0), ("not correct", 0.0), ("No.", 0.0)),
    *((1.5, None), ("1.5", None), ("-1", None), (-0.1, None), ("10", None), ("0,8", None), ("1/2", None), ("100%", None), ("5.1", None)),
    *((10**400, None), (float("nan"), None), (float("inf"), None), ("not incorrect", None), ("not wrong", None), ("yes and no", None)),
    *((None, None), ("", None), ([1], None), ({"is": 1}, None), ("unsure", None), ("partly correct", None), ("1e5", None), ("x.1", None)),
)
STATED = [json.dumps({key: value}) for key in KEYS for value, _ in MEANT] + [word for word in (*RIGHT, *WRONG)]


def plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


DRESSES = {
    "json": lambda key, value: json.dumps({key: value}),
    "capitals": lambda key, value: json.dumps({key.upper(): value, "why": "the answer is 1 and it is correct"}),
    "fenced": lambda key, value: f"Correct or incorrect?\n```json\n{json.dumps({key: value})}\n```\nThe score is 1, I think.",
    "thought": lambda key, value: f'<think>{{"score": 1}} or verdict: no?</think>{json.dumps({key: value})}',
    "line": lambda key, value: f"{key.title()}: {plain(value)}",
    "bold": lambda key, value: f"The answers differ in a word.\n\n**{key.title()}:** {plain(value)}",
    "equals": lambda key, value: f"{key} = {plain(value)}\nThe answer: 1",
    "next_line": lambda key, value: f"Answer: yes\n{key.upper()}:\n{plain(value)}",
}


@pytest.mark.parametrize("dress", DRESSES)
def test_a_verdict_is_read_as_it_is_meant_in_every_dress_or_not_at_all(dress):
    read = Counter()
    for key in KEYS:
        for value, meant in MEANT:
            state, score, reason = parse_verdict(DRESSES[dress](key, value))
            assert score in (meant, None), (key, value)
            assert (state is ReplyState.OK) == (score is not None) and bool(reason) == (score is None)
            read[score is not None] += 1
    assert read[True] >= len(KEYS) * sum(meant is not None for _, meant in MEANT) * 0.9, "and as a rule it is read"


def test_of_two_verdicts_none_is_taken():
    for one, other in (("correct", "incorrect"), ("0.2", "0.8"), ("yes", "0")):
        assert parse_verdict(f"Verdict: {one}\nScore: {other}").state is ReplyState.UNPARSABLE
    assert parse_verdict("Verdict: incorrect\nAnswer: 1\nReference answer: yes").score == 0.0, "an answer is no verdict"


@pytest.mark.parametrize("text", ["verdict" + " " * 90_000 + "x", "Score:\n" * 14_000, "*" * 100_000, '{"score": ' + "1" * 5_000 + "}"])
def test_a_verdict_is_read_in_no_time_or_not_at_all(text):
    assert parse_verdict(text).score is None


def test_a_long_reply_is_not_cut_into_another_number():
    assert parse_verdict(f"{' ' * 99_992}Score: 0.25").state is ReplyState.UNPARSABLE


# -- at random


def spoiled(text: str, steps: Sequence[Step]) -> str:
    for name, at, value in steps:
        text = TEXTS[name](text, at, value)
    return text


def stands_there(score: float, text: str) -> bool:
    """Whether the text says this number, or a word for it, anywhere."""
    said = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    numbers = re.findall(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])", said)
    words = {1.0: RIGHT, 0.0: WRONG}.get(score, ())
    return score in map(float, numbers) or any(re.search(rf"(?<![^\W_]){w}(?![^\W_])", said, re.IGNORECASE) for w in words)


def assert_nothing_is_made_up(state: ReplyState, score: float | None, reason: str, text: str) -> None:
    assert (state is ReplyState.OK) == (score is not None) == (reason == "")
    assert score is None or (0 <= score <= 1 and stands_there(score, text)), (score, text)


_STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(0, 500), st.sampled_from(STATED) | st.text(max_size=12)), max_size=3
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(STATED) | st.text(max_size=60), _STEPS)
def test_no_score_is_made_up(text, steps):
    told = spoiled(text, steps)
    assert_nothing_is_made_up(*parse_verdict(told), told)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_score_is_made_up_in_two_thousand_replies_over_the_wire():
    texts = []
    for i in range(2_000):
        rng = stream(3, "verdict", i)
        steps = [(pick(rng, sorted(TEXTS)), int(rng.integers(500)), pick(rng, STATED)) for _ in range(int(rng.integers(4)))]
        texts.append(spoiled(pick(rng, STATED), steps))
    bodies = [json.dumps(completion(text)).encode() for text in texts]
    verdicts = judged(bodies, lambda judge, i: judge.verdict("What is asked?", ["yes"], "no"))
    for verdict, text in zip(verdicts, texts, strict=True):
        assert_nothing_is_made_up(verdict.state, verdict.score, verdict.reason, text)
    scores = Counter(v.score for v in verdicts)
    assert scores.total() == 2_000 and scores[None] > 200 and scores[0.0] > 200 and scores[1.0] > 200 and scores[0.1] > 50
