"""The gate: what it finds, and that it cannot pass on nothing."""

import numpy as np
import pandas as pd
import pytest

from sesa_core.bank.holding import Holding
from sesa_core.bank.quality import IDENTITY, GateRow, check_bank, check_candidates, frame, run_suite
from sesa_core.cards.lesson import embedding_text
from tests.bank_support import card, embedder

gxe = pytest.importorskip("great_expectations.expectations")
CARDS = [card("anthem"), card("currency")]
DIMENSION = 256


def vectors(cards) -> np.ndarray:
    return embedder().embed_cards([embedding_text(c) for c in cards])


def records(cards) -> pd.DataFrame:
    """Rows as damage might leave them: no value is made to fit its column."""
    return pd.DataFrame([c.model_dump(mode="json", warnings=False) | {"content_hash": c.content_hash} for c in cards], dtype=object)


def bank(cards, matrix=None, tombstoned=("gone",), max_cards=800):
    matrix = vectors(cards) if matrix is None else matrix
    rows = records(cards)
    return check_bank(rows[[*IDENTITY]], rows, matrix, dimension=DIMENSION, max_cards=max_cards, tombstoned=tombstoned)


def broken(**changes):
    """A card that its model would refuse: what damage or a bug might leave in the table."""
    return CARDS[0].model_copy(update={"card_id": "broken", "pattern": "another one"} | changes)


def test_a_good_bank_passes_with_every_check_run():
    gate = bank(CARDS)
    assert gate.passed and gate.evaluated == gate.expected >= 20


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"category": "ninth"}, "values_to_be_in_set:category"),
        ({"state": "odd"}, "values_to_be_in_set:state"),
        ({"embedder": None}, "values_to_be_in_set:missing_fields"),
        ({"retrieved_count": 1.5}, "values_to_be_in_set:wrong_types"),
        ({"pattern": "x" * 401}, "values_to_be_between:longest_text"),
        ({"common_confusion": ""}, "values_to_be_between:shortest_text"),
        ({"queries": tuple("abcd")}, "values_to_be_between:query_count"),
        ({"queries": ()}, "values_to_be_between:query_count"),
        ({"trigger_keywords": ()}, "values_to_be_between:keyword_count"),
        ({"uplift_n": -1}, "values_to_be_between:lowest_counter"),
        ({"credit_hurt": float("nan")}, "values_to_be_in_set:missing_fields"),
        ({"hurt_count": 1}, "pair_values_a_to_be_greater_than_b:retrieved_count/credited_count"),
        ({"valid_from_step": 3, "valid_until_step": 1}, "values_to_be_between:interval"),
        ({"card_id": "gone"}, "values_to_not_be_in_set:card_id"),
    ],
)
def test_a_bad_card_is_named_with_its_rule(changes, rule):
    bad = broken(**changes)
    gate = bank([*CARDS, bad], vectors([*CARDS, CARDS[0]]))
    assert not gate.passed
    assert (bad.card_id, rule) in {(f.card_id, f.rule) for f in gate.findings}
    assert {f.card_id for f in gate.findings} == {bad.card_id}


def test_ids_and_contents_are_unique():
    twin = CARDS[0].model_copy(update={"card_id": "twin"})
    assert {f.card_id for f in bank([*CARDS, twin]).findings} == {"twin", "card-anthem"}
    assert {f.rule for f in bank([*CARDS, CARDS[1]]).findings} >= {"values_to_be_unique:card_id"}


@pytest.mark.parametrize(
    ("matrix", "rule"),
    [
        (np.zeros((2, 256), np.float32), "values_to_be_between:vector_norm"),
        (np.full((2, 256), np.nan, np.float32), "values_to_be_in_set:missing_fields"),
        (np.eye(2, 255, dtype=np.float32), "values_to_be_between:vector_length"),
    ],
)
def test_vectors_have_the_right_length_and_norm(matrix, rule):
    assert rule in {f.rule for f in bank(CARDS, matrix).findings}


def test_a_bank_over_its_cap_fails_as_a_whole():
    assert bank(CARDS, max_cards=1).findings == (GateRow("", "table_row_count_to_be_between", "2"),)


def test_a_candidate_may_not_bring_counters_along():
    assert check_candidates(records(CARDS), vectors(CARDS), dimension=DIMENSION).passed
    used = [CARDS[0], card("currency", retrieved_count=1)]
    assert [f.card_id for f in check_candidates(records(used), vectors(used), dimension=DIMENSION).findings] == ["card-currency"]


# -- never vacuously


def test_an_empty_frame_fails():
    nothing = Holding.of((), np.zeros((0, DIMENSION), np.float32))
    gate = check_bank(nothing.records(IDENTITY), nothing.records(), nothing.vectors, dimension=DIMENSION, max_cards=800, tombstoned=())
    assert not gate.passed and gate.findings == (GateRow("", "empty_frame", "no card"),)


def test_an_empty_suite_fails():
    gate = run_suite("none", [], frame(records(CARDS), vectors(CARDS)))
    assert not gate.passed and gate.findings == (GateRow("", "empty_suite", "no expectation"),)


def test_a_check_that_could_not_run_fails():
    gate = run_suite("s", [gxe.ExpectColumnValuesToBeBetween(column="no_such_column", min_value=0)], frame(records(CARDS), vectors(CARDS)))
    assert not gate.passed and gate.evaluated == 0
    assert gate.findings[0].value.startswith("could not run")


def test_a_check_that_looked_at_no_value_fails():
    nothing_but_nulls = frame(records(CARDS), vectors(CARDS)).assign(empty=np.nan)
    gate = run_suite("s", [gxe.ExpectColumnValuesToBeBetween(column="empty", min_value=0)], nothing_but_nulls)
    assert not gate.passed and gate.findings == (GateRow("", "values_to_be_between:empty", "looked at no value"),)
