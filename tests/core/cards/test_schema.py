"""The skill card: what it refuses, what its hash depends on, and the table that follows from it."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from sesa_core.cards.schema import CATEGORIES, EXAMPLE_CHARS, Origin, SkillCard, arrow_schema, card_from_draft, card_from_row
from tests.bank_support import card, draft


def test_there_are_eight_categories():
    assert len(set(CATEGORIES)) == 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("category", "a_ninth_one"),
        ("pattern", ""),
        ("pattern", "two\nlines"),
        ("pattern", "a NUL \x00 byte"),
        ("pattern", "a line separator \u2028"),
        ("pattern", "x" * 10_000),
        ("key_distinction", " blank before"),
        ("trigger_keywords", ()),
        ("trigger_keywords", tuple("abcdefghi")),
        ("trigger_keywords", ("Anthem", "anthem")),
        ("queries", ()),
        ("queries", ("a", "b", "c", "d")),
        ("queries", ("tab\tinside",)),
        ("example_question", "x" * (EXAMPLE_CHARS + 1)),
        ("card_id", "Upper Case"),
        ("retrieved_count", -1),
        ("uplift_mean", float("nan")),
        ("state", "deleted"),
        ("ninth", "an unknown field"),
    ],
)
def test_a_card_that_breaks_a_rule_is_refused_with_its_field_named(field, value):
    with pytest.raises(ValidationError) as refused:
        card("anthem", **{field: value})
    assert refused.value.errors()[0]["loc"][0] == field


def test_counters_must_agree():
    with pytest.raises(ValidationError, match="exceeds retrieved_count"):
        card("anthem", retrieved_count=2, helpful_count=2, hurt_count=1)
    assert card("anthem", retrieved_count=3, helpful_count=1, hurt_count=2).net == -1


def test_validity_must_not_end_before_it_begins():
    with pytest.raises(ValidationError, match="valid_until_step"):
        card("anthem", valid_from_step=5, valid_until_step=4)


def test_a_card_is_frozen():
    with pytest.raises(ValidationError):
        card("anthem").pattern = "another"


def test_the_hash_follows_the_content_and_nothing_else():
    one = card("anthem")
    assert card("anthem", card_id="other", retrieved_count=7, run="r", origin=Origin.MINED).content_hash == one.content_hash
    other = card("anthem", queries=("{country} society",))
    assert other.content_hash != one.content_hash
    assert one.model_copy(update={"queries": other.queries}).content_hash == other.content_hash


def test_a_card_survives_its_row_and_damage_is_seen():
    one = card("anthem", source_problem_id="p", last_helped_step=4, vector=(0.6, 0.8))
    assert card_from_row(one.row()) == one
    with pytest.raises(ValueError, match="content_hash"):
        card_from_row(one.row() | {"pattern": "something else"})


def test_a_draft_becomes_a_card_with_a_short_example():
    made = card_from_draft(draft("anthem"), card_id="c", origin=Origin.DISTILLED, example_question="What\n is " + "x" * 500, created_step=3)
    assert made.example_question == ("What is " + "x" * 500)[:EXAMPLE_CHARS]
    assert (made.queries, made.created_step, made.origin) == (("{country} culture",), 3, Origin.DISTILLED)


def test_the_table_follows_from_the_model():
    schema = arrow_schema(256)
    assert set(schema.names) == set(SkillCard.model_fields) | {"content_hash"}
    assert schema.field("vector").type == pa.list_(pa.float32(), 256)
    assert schema.field("queries").type.value_type == pa.string()
    assert schema.field("card_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    nullable = {f.name for f in schema if f.nullable}
    assert nullable == {"why", "valid_until_step", "last_retrieved_step", "last_helped_step"}
