"""The hand-written cards that ship, and what happens to a folder that somebody else wrote."""

import pytest
import yaml

from sesa_core.cards.lesson import difference, embedding_text
from sesa_core.cards.schema import CATEGORIES, Origin
from sesa_core.cards.seeds import load_seed_cards
from sesa_core.errors import ConfigError
from tests.bank_support import embedder

FIELDS = {
    "card_id": "seed-x",
    "category": "temporal",
    "pattern": "p",
    "common_confusion": "c",
    "key_distinction": "k",
    "trigger_keywords": ["t"],
    "queries": ["q"],
    "why": "because",
}


def write(folder, name="x.yaml", **changes):
    fields = {k: v for k, v in (FIELDS | changes).items() if v is not None}
    (folder / name).write_text(yaml.safe_dump(fields), encoding="utf-8")
    return folder


def test_fifteen_seeds_ship_over_all_categories_each_with_its_reason():
    seeds = load_seed_cards()
    assert len(seeds) == 15
    assert {c.category for c in seeds} == set(CATEGORIES)
    assert all(c.origin is Origin.SEED and c.why and c.card_id.startswith("seed-") for c in seeds)
    assert [c.card_id for c in seeds] == sorted(c.card_id for c in seeds)


def test_no_two_seeds_teach_the_same():
    seeds = load_seed_cards()
    vectors = embedder().embed_cards([embedding_text(c) for c in seeds])
    near = [
        (a.card_id, b.card_id)
        for i, a in enumerate(seeds)
        for j, b in enumerate(seeds[:i])
        if vectors[i] @ vectors[j] >= embedder().dedup_threshold and difference(a, b) is None
    ]
    assert near == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who is the paternal grandfather of Queen Victoria?", "seed-family-chain"),
        ("How many members does the band Radiohead have?", "seed-count-members"),
        ("The actor who played Gandalf was born in which city?", "seed-described-entity"),
        ("What is the second largest city in the country where the Danube begins?", "seed-superlative"),
    ],
)
def test_a_question_is_nearest_to_the_seed_that_speaks_of_it(question, expected):
    seeds = load_seed_cards()
    near = embedder().embed_questions([question]) @ embedder().embed_cards([embedding_text(c) for c in seeds]).T
    assert seeds[int(near[0].argmax())].card_id == expected


def test_a_folder_of_ones_own_is_read(tmp_path):
    assert [c.card_id for c in load_seed_cards(write(tmp_path))] == ["seed-x"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"category": "ninth"}, "x.yaml: card seed-x: category"),
        ({"pattern": "two\nlines"}, "x.yaml: card seed-x: pattern"),
        ({"pattern": "y" * 10_000}, "x.yaml: card seed-x: pattern"),
        ({"queries": None}, "x.yaml: card seed-x: queries"),
        ({"trigger_keywords": ["ok", "nul\x00"]}, "x.yaml: card seed-x: trigger_keywords.1"),
        ({"why": None}, "x.yaml: card seed-x: why"),
        ({"helpful_count": 5}, "x.yaml: card seed-x: helpful_count"),
        ({"card_id": None}, "x.yaml: card (without id): card_id"),
    ],
)
def test_a_wrong_card_is_refused_with_file_card_and_field(tmp_path, changes, named):
    with pytest.raises(ConfigError) as refused:
        load_seed_cards(write(tmp_path, **changes))
    assert str(refused.value).startswith(named)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_one_id_twice_is_refused(tmp_path):
    write(tmp_path, "a.yaml")
    with pytest.raises(ConfigError, match="b.yaml: card_id"):
        load_seed_cards(write(tmp_path, "b.yaml"))


@pytest.mark.parametrize("text", ["- a list", "card_id: [unclosed", ""])
def test_a_file_that_is_no_card_is_refused(tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match="bad.yaml"):
        load_seed_cards(tmp_path)


def test_a_missing_or_empty_folder_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="bank.seed_path"):
            load_seed_cards(folder)
