"""A holding reads like a tuple of cards, and makes another one instead of changing."""

import numpy as np
import pytest

from sesa_core.bank.holding import Holding
from tests.bank_support import card

CARDS = (card("anthem"), card("climate"), card("currency"))
VECTORS = np.eye(3, dtype=np.float32)


@pytest.fixture
def held() -> Holding:
    order = [2, 0, 1]
    return Holding.of([CARDS[i] for i in order], VECTORS[order])


def test_cards_are_sorted_by_id_with_their_vectors(held):
    assert list(held) == list(CARDS) and held.ids == [c.card_id for c in CARDS] and len(held) == 3
    assert (held.vectors == VECTORS).all() and held.vector("card-climate").tolist() == [0, 1, 0]
    assert (held[0], held[-1], list(held[1:])) == (CARDS[0], CARDS[2], [CARDS[1], CARDS[2]])
    with pytest.raises(IndexError):
        held[3]


def test_cards_are_found_by_name(held):
    assert (held.place("card-currency"), held.place("gone"), held.get("gone")) == (2, None, None)
    assert held.named(["gone", "card-climate"]) == {"card-climate": CARDS[1]}
    assert held.contents() == {c.content_hash: c.card_id for c in CARDS}


def test_cards_are_grouped_by_the_first_of_their_triggers(held):
    twin = CARDS[2].model_copy(update={"card_id": "a-twin"})
    grouped = held.after([twin], {"a-twin": VECTORS[0]}).by_first_trigger()
    assert {k: v.tolist() for k, v in grouped.items()} == {"anthem": [1], "climate": [2], "currency": [0, 3]}
    assert Holding.of(()).by_first_trigger() == {}


def test_what_comes_after_leaves_the_holding_as_it_was(held):
    used = CARDS[1].model_copy(update={"retrieved_count": 1})
    new = card("anthem", card_id="a-new-one")
    after = held.after([used, new], {"a-new-one": np.ones(3, np.float32)}, removed=["card-anthem"])
    assert list(after) == [new, used, CARDS[2]] and list(held) == list(CARDS)
    assert after.vectors.tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 1]]
    assert after.column("retrieved_count").tolist() == [0, 1, 0]
    assert list(Holding(after.rows, after.vectors)) == list(after), "the rows say the same as the cards"
    assert held.after() is held
    with pytest.raises(KeyError):
        held.after([new])


def test_the_gate_is_asked_about_cards_that_changed_since_it_was_asked(held):
    judged = held.judged()
    assert (list(held.unjudged()), list(judged.unjudged())) == (list(CARDS), [])
    used, new = CARDS[1].model_copy(update={"retrieved_count": 1}), card("anthem", card_id="a-new-one")
    after = judged.after([used, new], {"a-new-one": np.ones(3, np.float32)}, removed=["card-anthem"])
    assert list(after.unjudged()) == [new, used] and after.unjudged().vectors.tolist() == [[1, 1, 1], [0, 1, 0]]
    assert list(after.judged().unjudged()) == [] and list(judged.after([used]).unjudged()) == [used]


def test_nobody_can_change_the_vectors(held):
    for holding in (held, held.after([CARDS[1].model_copy(update={"retrieved_count": 1})]), held.judged()):
        with pytest.raises(ValueError, match="read-only"):
            holding.vectors[0] = 0
    assert held.vectors.tolist() == VECTORS.tolist()


def test_a_holding_can_be_empty_and_filled():
    assert len(Holding.of(())) == 0 and list(Holding.of(())) == []
    assert Holding.of(()).after([CARDS[0]], {"card-anthem": VECTORS[0]}).vectors.shape == (1, 3)


def test_only_the_cards_that_are_looked_at_are_read(held):
    damaged = held.rows.to_pylist()
    damaged[1]["content_hash"] = "wrong"
    rows = Holding(held.rows.from_pylist(damaged, schema=held.rows.schema), VECTORS)
    assert (rows[0], rows[2]) == (CARDS[0], CARDS[2])
    with pytest.raises(ValueError, match="card-climate: its content does not match"):
        list(rows)
