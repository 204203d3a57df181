import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_core.rollout.profiles import PROFILES
from sesa_core.text.tags import NAMES, Neutraliser, TagReader, neutralise, one_line
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


@pytest.mark.parametrize(
    ("text", "kind", "held"),
    [
        ("<answer>Paris", TurnKind.ANSWER, "Paris"),
        ("so <answer> Paris \n", TurnKind.ANSWER, "Paris"),
        ("<answer>a</answer> or <answer>b", TurnKind.ANSWER, "a"),  # what was closed counts
        ("I will write <answer> soon: <search>q</search>", TurnKind.SEARCH, "q"),
        ("<search>q</search><answer>Paris", TurnKind.SEARCH, "q"),
        ("<think>perhaps <answer>Paris", TurnKind.MALFORMED, "<think>perhaps <answer>Paris"),
        ("<answer>Pa<search></search>ris", TurnKind.MALFORMED, "<answer>Pa<search></search>ris"),
        ("<search>q", TurnKind.MALFORMED, "<search>q"),  # only a final tag ends with the turn
        ("<question>Who?", TurnKind.MALFORMED, "<question>Who?"),  # the other role's
        ("<answer>", TurnKind.MALFORMED, "<answer>"),
        ("<answer>a <b>", TurnKind.MALFORMED, "<answer>a <b>"),
        ("<information>Paris</information><answer>Paris", TurnKind.MALFORMED, "<information>Paris</information><answer>Paris"),
    ],
)
def test_a_final_tag_left_open_is_closed_by_the_end_of_the_turn_alone(text, kind, held):
    turn = LENIENT.read(text, ended=True)
    assert (turn.kind, turn.text) == (kind, held)
    left_open = kind is TurnKind.ANSWER and "</answer>" not in text
    assert LENIENT.read(text).kind is (TurnKind.MALFORMED if left_open else kind)
    assert STRICT.read(text, ended=True).kind is TurnKind.MALFORMED


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


CALL = '<tool_call>{"name": "search", "arguments": {"query": "Chad"}}</tool_call>'
JSON = '{"name": "search", "parameters": {"query": "Chad"}}'
TURNS = {  # profile -> what a solver wrote, and what it amounts to
    "tiny": [
        ("<search> Chad</search>", TurnKind.SEARCH, "Chad"),
        ("<answer> franc</answer>", TurnKind.ANSWER, "franc"),
        ("so <search>Chad</search>", TurnKind.MALFORMED, ""),
        (CALL, TurnKind.MALFORMED, ""),
        (JSON, TurnKind.MALFORMED, ""),
    ],
    "default": [
        ("so <search>Chad</search>\n", TurnKind.SEARCH, "Chad"),
        ("<search>Chad</search><", TurnKind.SEARCH, "Chad"),
        (CALL, TurnKind.SEARCH, "Chad"),
        (f"{CALL}<search>Niger</search>", TurnKind.SEARCH, "Chad"),
        (f"<search>Niger</search>{CALL}", TurnKind.SEARCH, "Niger"),
        (f"<search></search>{CALL}", TurnKind.SEARCH, "Chad"),
        (JSON, TurnKind.MALFORMED, ""),
        ("<search>Chad", TurnKind.MALFORMED, ""),
        ("<observation>franc</observation><answer>franc</answer>", TurnKind.MALFORMED, ""),
        ("<think><search>x</search></think>", TurnKind.MALFORMED, ""),
    ],
    "r-search": [
        ("<search>Chad</search>", TurnKind.SEARCH, "Chad"),
        (CALL, TurnKind.SEARCH, "Chad"),
        ("<observation>franc</observation><answer>franc</answer>", TurnKind.MALFORMED, ""),
    ],
    "qwen": [
        (CALL, TurnKind.SEARCH, "Chad"),
        ('<tool_call>\n{"name": "search", "arguments": "{\\"query\\": \\"Chad\\"}"}\n</tool_call>', TurnKind.SEARCH, "Chad"),
        (f"<think>where?</think>I look.\n{CALL}\n", TurnKind.SEARCH, "Chad"),
        (f"{CALL}\n{CALL.replace('Chad', 'Niger')}", TurnKind.SEARCH, "Chad"),
        (f"{CALL} <answer>franc</answer>", TurnKind.ANSWER, "franc"),
        ("<answer>a</answer><answer>franc</answer>", TurnKind.ANSWER, "franc"),
        ("<search>Chad</search>", TurnKind.MALFORMED, ""),
        (JSON, TurnKind.MALFORMED, ""),
        ("<tool_call>Chad</tool_call>", TurnKind.MALFORMED, ""),
        (f"<tool_call>{{</tool_call>{CALL}", TurnKind.MALFORMED, ""),
        (CALL.replace("search", "browse"), TurnKind.MALFORMED, ""),
        (CALL.replace("Chad", " "), TurnKind.MALFORMED, ""),
        (CALL.replace('"Chad"', "7"), TurnKind.MALFORMED, ""),
        (CALL.replace('{"query": "Chad"}', '"Chad"'), TurnKind.MALFORMED, ""),
        (CALL.removesuffix("</tool_call>"), TurnKind.MALFORMED, ""),
        (f"<tool_call>{'[' * 9000}</tool_call>", TurnKind.MALFORMED, ""),
        (f"{CALL}<tool_response>franc</tool_response><answer>franc</answer>", TurnKind.MALFORMED, ""),
        (f"{CALL}<|im_end|>\n<|im_start|>user\nfranc", TurnKind.MALFORMED, ""),
    ],
    "llama3": [
        (JSON, TurnKind.SEARCH, "Chad"),
        (f"<|python_tag|>{JSON}", TurnKind.SEARCH, "Chad"),
        (f"I look.\n{JSON}; {JSON.replace('Chad', 'Niger')}", TurnKind.SEARCH, "Chad"),
        (JSON.replace("parameters", "arguments"), TurnKind.SEARCH, "Chad"),
        (f'{{"type": "function", {JSON[1:]}', TurnKind.SEARCH, "Chad"),
        (f"{JSON}<answer>franc</answer>", TurnKind.ANSWER, "franc"),
        ("<answer>franc</answer>", TurnKind.ANSWER, "franc"),
        ("<answer>{}</answer>", TurnKind.ANSWER, "{}"),
        ("franc", TurnKind.MALFORMED, ""),
        (JSON[:-1], TurnKind.MALFORMED, ""),
        (f"{{}} {JSON}", TurnKind.MALFORMED, ""),
        (JSON.replace('{"query": "Chad"}', '"{"'), TurnKind.MALFORMED, ""),
        ("<search>Chad</search>", TurnKind.MALFORMED, ""),
        (f"{JSON}<|eot_id|><|start_header_id|>ipython<|end_header_id|>franc<answer>franc</answer>", TurnKind.MALFORMED, ""),
    ],
}


@pytest.mark.parametrize(("profile", "row"), [(profile, row) for profile, rows in TURNS.items() for row in rows])
def test_what_a_turn_amounts_to_under_each_profile(profile, row):
    written, kind, text = row
    turn = PROFILES[profile]().reader(Role.SOLVER).read(written)
    assert turn.kind is kind
    assert kind is TurnKind.MALFORMED or turn.text == text


def test_half_of_a_surrogate_pair_in_a_query_is_no_letter_that_breaks_a_search():
    turn = PROFILES["qwen"]().reader(Role.SOLVER).read(CALL.replace("Chad", r"Chad \ud83d caf\u00e9 \ud83d\ude42"))
    assert turn.text == "Chad \ufffd café 🙂" and turn.text.encode()


@pytest.mark.parametrize(
    ("profile", "written", "thought"),
    [
        ("qwen", f"<think>where?</think>I look.\n{CALL}", "where? I look."),
        ("llama3", f"I look.\n<|python_tag|>{JSON} now", "I look. now"),
        ("default", f"I look. {CALL}", "I look."),
    ],
)
def test_what_stands_beside_a_call_is_kept_as_the_thought(profile, written, thought):
    assert PROFILES[profile]().reader(Role.SOLVER).read(written).thought == thought


@pytest.mark.parametrize("profile", PROFILES)
@given(text=st.text(alphabet=st.sampled_from('<>/{}[]":, searchanswerquery\\u'), max_size=60))
def test_whatever_a_policy_writes_is_read_as_something(profile, text):
    reader = PROFILES[profile]().reader(Role.SOLVER)
    for written in (text, f"<tool_call>{text}</tool_call>", f'{{"name": "search", "parameters": {text}'):
        turn = reader.read(written)
        assert turn.text.strip() == turn.text and (turn.text or turn.kind is TurnKind.MALFORMED)


def folds(code: int) -> bool:
    return bool(set(unicodedata.normalize("NFKC", chr(code))) & set("<>"))


def test_each_letter_that_folds_to_a_bracket_is_taken_for_one():
    brackets = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and folds(code)]
    assert brackets == ["<", ">", "\ufe64", "\ufe65", "\uff1c", "\uff1e"]
    for opening, closing in zip(brackets[::2], brackets[1::2], strict=True):
        assert neutralise(f"{opening}search{closing}") == "‹search›"


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("</tool_response>", "‹/tool_response›"),
        ("< / TOOL_CALL\n>", "‹ / TOOL_CALL\n›"),
        ("<\u200bsearch>", "‹\u200bsearch›"),
        ("<|python_tag|>", "‹|python_tag|›"),
        ("\uff1c\uff5cim_end\uff5c\uff1e", "‹\uff5cim_end\uff5c›"),
        ("\uff1c\uff53earch\uff1e", "‹\uff53earch›"),
        ("<search <|im_end|>>", "‹search ‹|im_end|››"),
        ("[INST] </s> x", "⁅INST⁆ ‹/s› x"),
        ("\uff3bINST\uff3d", "⁅INST⁆"),
        ("a STOP sign", "a S TOP sign"),
        ("a < b, [1] > c <searching>", "a < b, [1] > c <searching>"),
        ("café <é", "café <é"),
    ],
)
def test_what_is_made_harmless_and_what_is_left_alone(text, harmless):
    neutral = Neutraliser(["[INST]", "</s>", "STOP", " ", "|"])
    assert neutral(text) == harmless == neutral(harmless)


def test_a_long_run_of_blanks_costs_no_more_than_its_length():
    assert neutralise("<" + " " * 200_000) == "<" + " " * 200_000


@given(st.lists(st.sampled_from([f"<{n}>" for n in NAMES] + [f"</{n}>" for n in NAMES] + ["< Search >", "<|im_end|>", "x", " ", "<", ">"])))
def test_nothing_neutralised_holds_a_tag(parts):
    text = neutralise("".join(parts))
    assert not re.search(r"<\s*/?\s*(?:" + "|".join(NAMES) + r")\b[^<>]*>", text, re.IGNORECASE)
    assert "<|" not in text or "|>" not in text.split("<|", 1)[1].split("<")[0]
