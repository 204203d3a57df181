"""What counts as a card and as a verdict, and what does not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.cards.schema import CATEGORIES, Origin, card_from_draft
from sesa_core.judge.base import CardDraft, Distillation, ReplyState, Usage
from sesa_core.judge.replies import open_envelope, parse_card, parse_verdict, read_again
from tests.judge_support import completion

FIELDS = {
    "category": "attribute_lookup",
    "pattern": "The question asks for the anthem of a country.",
    "common_confusion": "It is looked for under economy.",
    "key_distinction": "It stands under culture.",
    "trigger_keywords": ["anthem", "national song"],
    "queries": ["{country} culture"],
}
DRAFT = CardDraft(
    "attribute_lookup",
    "The question asks for the anthem of a country.",
    "It is looked for under economy.",
    "It stands under culture.",
    ("anthem", "national song"),
    ("{country} culture",),
)
LINES = """CATEGORY: attribute_lookup
PATTERN: The question asks for the anthem of a country.
COMMON_CONFUSION: It is looked for
  under economy.
KEY_DISTINCTION: It stands under culture.
TRIGGER_KEYWORDS: anthem, national song
QUERIES: "{country} culture"
"""


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FIELDS),
        json.dumps(FIELDS | {"no_lesson": ""}),
        f"```json\n{json.dumps(FIELDS, indent=2)}\n```",
        f"For {{country}} questions I suggest this card:\n{json.dumps(FIELDS)}\nI hope it helps.",
        json.dumps({"card": FIELDS}),
        f'<think>maybe {{"pattern": "a draft"}}</think>{json.dumps(FIELDS)}',
        json.dumps({k.title().replace("_", " "): v for k, v in FIELDS.items()}),
        LINES,
        LINES.replace("PATTERN:", "**PATTERN:**").replace("KEY_DISTINCTION", "- Key Distinction"),
        f"Here is the card.\n```\n{LINES}```",
    ],
)
def test_a_card_is_found_however_it_is_wrapped(text):
    assert parse_card(text) == (ReplyState.OK, DRAFT, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"category": "geography"}, "category: 'geography' is not one of"),
        ({"category": None}, "category"),
        ({"pattern": ""}, "pattern"),
        ({"pattern": 7}, "pattern"),
        ({"key_distinction": ["a", "b"]}, "key_distinction"),
        ({"common_confusion": "x" * 401}, "common_confusion"),
        ({"trigger_keywords": []}, "trigger_keywords: at least one"),
        ({"trigger_keywords": {"a": 1}}, "trigger_keywords"),
        ({"queries": [1, 2]}, "queries"),
        ({"queries": ["", " "]}, "queries: at least one"),
        ({"pattern": "a\u0000b"}, "pattern"),
    ],
)
def test_a_card_that_breaks_a_limit_is_unparsable_with_the_field_named(change, reason):
    state, draft, said = parse_card(json.dumps(FIELDS | change))
    assert (state, draft) == (ReplyState.UNPARSABLE, None)
    assert said.startswith(reason)


def test_a_missing_field_is_not_filled_in():
    for name in FIELDS:
        state, draft, reason = parse_card(json.dumps({k: v for k, v in FIELDS.items() if k != name}))
        assert (state, draft) == (ReplyState.UNPARSABLE, None)
        assert reason


def test_long_lists_keep_their_first_distinct_entries():
    words = ["anthem", "Anthem", *(f"word {c}" for c in "abcdefghij")]
    draft = parse_card(json.dumps(FIELDS | {"trigger_keywords": words, "queries": ["a", "b", "a", "c", "d"]})).draft
    assert draft.trigger_keywords == ("anthem", *(f"word {c}" for c in "abcdefg"))
    assert draft.queries == ("a", "b", "c")


def test_no_lesson_is_an_answer_with_its_reason():
    empty = {k: "" for k in FIELDS}
    assert parse_card(json.dumps(empty | {"no_lesson": "nothing in common"})) == (ReplyState.OK, None, "nothing in common")
    assert parse_card("NO_LESSON: nothing in common") == (ReplyState.OK, None, "nothing in common")


def test_a_reason_is_one_short_line_that_can_be_stored_and_printed():
    for said in ("cut \ud800\x1b[2J\x00\n here", "x" * 9_000):
        envelope = open_envelope(completion(None, refusal=said))
        for reason in (parse_card(json.dumps({"no_lesson": said})).reason, parse_card(f"I'm sorry {said}").reason, envelope.reason):
            assert reason.isprintable() and 0 < len(reason.encode()) <= 1200


def test_halves_of_a_surrogate_pair_are_no_part_of_a_text():
    assert open_envelope(completion("a\ud800b")).text == "a?b"


def test_a_count_beyond_any_price_is_none():
    assert open_envelope(completion("x") | {"usage": {"prompt_tokens": 10**400, "completion_tokens": 7}}).prompt_tokens == 0


def test_a_refusal_in_words_is_refused():
    assert parse_card("I'm sorry, but I can't help with that.").state is ReplyState.REFUSED


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FIELDS)[:-30],
        "the anthem stands under culture",
        "{}",
        "[]",
        "null",
        "{" * 100_000,
        '{"a":' * 19_000,
        "*" * 100_000,
        "x" + "\n" * 99_000 + "y",
        f'{{"pattern": {"9" * 5_000}}}',
    ],
)
def test_what_holds_no_card_is_unparsable(text):
    state, draft, reason = parse_card(text)
    assert (state, draft) == (ReplyState.UNPARSABLE, None)
    assert reason


def test_a_megabyte_is_not_read():
    assert parse_card(json.dumps(FIELDS) + " " * 1_000_000).state is ReplyState.UNPARSABLE
    assert parse_card(" \n ").state is ReplyState.EMPTY


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=30),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON | st.sampled_from(CATEGORIES)), st.text(max_size=20), st.text(max_size=20))
def test_whatever_comes_is_a_valid_card_or_has_a_reason(fields, before, after):
    state, draft, reason = parse_card(before + json.dumps(FIELDS | fields) + after)
    assert (draft is not None) == (state is ReplyState.OK) == (reason == "")
    if draft:
        card_from_draft(draft, card_id="x", origin=Origin.DISTILLED)  # raises unless every limit of the card schema holds


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["choices", "usage", "id"]), JSON | st.lists(st.dictionaries(st.sampled_from(["message", "finish_reason"]), JSON))
    )
)
def test_no_completion_is_too_strange_to_be_opened(body):
    envelope = open_envelope(body)
    assert envelope.prompt_tokens >= 0
    assert envelope.state is None or envelope.reason


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (completion("text"), None),
        (completion([{"type": "text", "text": "te"}, {"type": "text", "text": "xt"}]), None),
        (completion(json.dumps(FIELDS), finish="length"), ReplyState.TRUNCATED),
        (completion("text", finish="content_filter"), ReplyState.FILTERED),
        (completion(None, refusal="I will not"), ReplyState.REFUSED),
        (completion(None), ReplyState.EMPTY),
        (completion(5), ReplyState.EMPTY),
        (completion("x") | {"choices": []}, ReplyState.EMPTY),
        (completion("x") | {"choices": None}, ReplyState.EMPTY),
    ],
)
def test_the_envelope_says_why_a_text_is_not_read_and_keeps_the_usage(body, state):
    envelope = open_envelope(body)
    assert envelope.state is state
    assert (envelope.prompt_tokens, envelope.completion_tokens) == (11, 7)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Incorrect", 0.0),
        ("incorrect.", 0.0),
        ("Correct", 1.0),
        ("**Correct**", 1.0),
        ("Incorrect. The answer names another city.", 0.0),
        ("Some thought.\nVerdict: incorrect", 0.0),
        ('{"score": "0.8"}', 0.8),
        ('{"score": 0.8}', 0.8),
        ('{"score": 1}', 1.0),
        ('{"verdict": "incorrect"}', 0.0),
        ('```json\n{"correct": true}\n```', 1.0),
        ('<think>It is {"score": 1}?</think>{"score": 0}', 0.0),
    ],
)
def test_a_verdict_is_read_as_it_is_meant(text, score):
    assert parse_verdict(text) == (ReplyState.OK, score, "")


@pytest.mark.parametrize(
    "text",
    ["{}", '{"score": null}', '{"score": "high"}', '{"score": 5}', '{"score": NaN}', '{"verdict": "partly"}',
     "Correct, but the year is wrong.",
     '{"score": 1} {"score": 0}', '{"score": 0', "I could not decide", "not sure"],
)  # fmt: skip
def test_a_verdict_that_is_not_clear_is_never_a_score(text):
    state, score, reason = parse_verdict(text)
    assert (state, score) == (ReplyState.UNPARSABLE, None)
    assert reason


def test_an_empty_verdict_is_empty():
    assert parse_verdict("  ").state is ReplyState.EMPTY


def stored(state: ReplyState, text: str, reason: str = "as it was", draft: CardDraft | None = None) -> Distillation:
    return Distillation("f", "prompt", "model", state, draft, text, Usage(), reason)


def test_a_stored_reply_is_read_as_today():
    assert read_again(stored(ReplyState.UNPARSABLE, LINES)) == (ReplyState.OK, DRAFT, "")
    assert read_again(stored(ReplyState.OK, json.dumps(FIELDS), "", DRAFT)) == (ReplyState.OK, DRAFT, "")
    assert read_again(stored(ReplyState.OK, "no card here", "", DRAFT)).state is ReplyState.UNPARSABLE
    assert read_again(stored(ReplyState.REFUSED, json.dumps(FIELDS))) == (ReplyState.OK, DRAFT, "")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (ReplyState.TRUNCATED, json.dumps(FIELDS)),
        (ReplyState.FILTERED, json.dumps(FIELDS)),
        (ReplyState.EMPTY, ""),
        (ReplyState.REFUSED, "This judge does not do that."),
    ],
)
def test_what_came_around_a_stored_text_still_counts(state, text):
    """A finish reason, a filter and a field for refusals are not stored: the text alone would be read as something else."""
    assert read_again(stored(state, text)) == (state, None, "as it was")
