import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_core.text.tags import NAMES, TagReader, neutralise, one_line
from sesa_core.types import Role, TurnKind

STRICT = TagReader(Role.SOLVER, strict=True)
LENIENT = TagReader(Role.SOLVER, strict=False)


def test_reads_a_search_and_an_answer():
    assert STRICT.read("<search> Chad economy</search>").text == "Chad economy"
    turn = STRICT.read("<answer> Paris</answer>")
    assert (turn.kind, turn.text) == (TurnKind.ANSWER, "Paris")


def test_the_last_answer_wins_and_is_counted():
    turn = LENIENT.read("<think>x</think><answer>a</answer> no <answer>b</answer>")
    assert (turn.kind, turn.text, turn.tags) == (TurnKind.ANSWER, "b", 2)


@pytest.mark.parametrize("text", ["", "Paris", "<answer></answer>", "<search> </search>", "<question>q</question>", "<search>a</answer>"])
def test_malformed(text):
    assert STRICT.read(text).kind is TurnKind.MALFORMED
    assert LENIENT.read(text).kind is TurnKind.MALFORMED


def test_strict_refuses_words_around_the_tag():
    assert STRICT.read("well <answer>b</answer>").kind is TurnKind.MALFORMED
    assert LENIENT.read("well <answer>b</answer>").kind is TurnKind.ANSWER


def test_information_typed_by_the_policy_is_malformed():
    assert LENIENT.read("<information>Paris</information><answer>Paris</answer>").kind is TurnKind.MALFORMED


def test_thoughts_do_not_count():
    assert LENIENT.read("<think><answer>x</answer></think><search>q</search>").kind is TurnKind.SEARCH


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<search>q</search>", ""),
        ("<think>first\n a</think><think>then</think> so <search>q</search>", "first a then so"),
        ("<think><answer>x</answer></think><answer>y</answer>", "<answer>x</answer>"),
        ("<think>lost</think> nothing", "lost"),
    ],
)
def test_what_stands_beside_the_tag_is_kept_as_the_thought(text, thought):
    assert LENIENT.read(text).thought == thought


def test_a_proposer_ends_with_a_question():
    assert TagReader(Role.PROPOSER, strict=True).read("<question>Who?</question>").kind is TurnKind.QUESTION


def test_one_line_folds_white_space():
    assert one_line("a\n b\t<answer>") == "a b \u2039answer\u203a"


@given(st.lists(st.sampled_from([f"<{n}>" for n in NAMES] + [f"</{n}>" for n in NAMES] + ["< Search >", "<|im_end|>", "x", " ", "<", ">"])))
def test_nothing_neutralised_holds_a_tag(parts):
    text = neutralise("".join(parts))
    assert not re.search(r"<\s*/?\s*(?:" + "|".join(NAMES) + r")\b[^<>]*>", text, re.IGNORECASE)
    assert "<|" not in text or "|>" not in text.split("<|", 1)[1].split("<")[0]
