import json

import pytest

from sesa_core.cards.seeds import load_seed_cards
from sesa_core.cards.warm_start import load_warm_start
from sesa_core.errors import ConfigError


def test_cards_come_back_as_they_were(tmp_path):
    cards = load_seed_cards()
    path = tmp_path / "cards.jsonl"
    path.write_text("\n".join(json.dumps(c.row()) for c in cards) + "\n\n")
    assert load_warm_start(path) == cards


@pytest.mark.parametrize(
    ("change", "named"),
    [({"category": "ninth"}, "category"), ({"pattern": "two\nlines"}, "pattern"), ({"queries": []}, "queries"), ({"colour": 1}, "colour")],
)
def test_a_bad_line_is_named_with_card_and_field(tmp_path, change, named):
    card = load_seed_cards()[0]
    path = tmp_path / "cards.jsonl"
    path.write_text(json.dumps(card.row() | change))
    with pytest.raises(ConfigError, match=f"line 1: card {card.card_id}: {named}"):
        load_warm_start(path)


@pytest.mark.parametrize("text", ["not json", "[1]"])
def test_a_line_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "cards.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="line 1"):
        load_warm_start(path)


def test_a_missing_file_and_a_card_twice_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="warm_start_path"):
        load_warm_start(tmp_path / "none.jsonl")
    line = json.dumps(load_seed_cards()[0].row())
    path = tmp_path / "cards.jsonl"
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        load_warm_start(path)
