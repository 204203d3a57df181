"""The shipped world: real facts, enough of them, findable, and refused when damaged."""

import json
import shutil
from collections import Counter

import pytest

from sesa_core.errors import WorldError
from sesa_core.text.normalize import matches
from sesa_core.world.load import SHIPPED, load_world
from sesa_core.world.schema import HELD_OUT_RELATIONS, KINDS, LINKS, RELATIONS, SECTION_RELATIONS
from sesa_core.world.text import fold, mentions, proper_case, short_value


@pytest.fixture(scope="module")
def world():
    return load_world()


# Looked up by hand, outside the sources.
@pytest.mark.parametrize(
    ("country", "relation", "value"),
    [
        ("Chad", "capital", "N'Djamena"),
        ("Chad", "anthem", "La Tchadienne"),
        ("Japan", "currency", "Yen"),
        ("Iceland", "calling code", "354"),
        ("Brazil", "language", "Portuguese"),
        ("Germany", "web code", "de"),
        ("Nepal", "highest point", "Mount Everest"),
        ("Kenya", "independence", "12 December 1963"),
        ("Benin", "former name", "Dahomey"),
        ("Finland", "endonym", "Suomi"),
        ("China", "parliament", "National People's Congress"),
        ("Bhutan", "currency", "Ngultrum"),
    ],
)
def test_facts_are_those_of_the_real_world(world, country, relation, value):
    assert world.countries[country].facts[relation] == value


@pytest.mark.parametrize(
    ("name", "kind", "country"),
    [
        ("Franz Kafka", "person", "Czechia"),
        ("Radium", "element", "France"),
        ("Mount Kenya", "mountain", "Kenya"),
        ("Osaka", "city", "Japan"),
        ("Thames River", "river", "United Kingdom"),
        ("Great Barrier Reef", "site", "Australia"),
    ],
)
def test_entities_belong_to_their_country(world, name, kind, country):
    assert [(e.kind, e.country) for e in world.entities_by_name[name]] == [(kind, country)]


def test_cordoba_is_a_real_namesake_on_three_continents(world):
    found = {e.qualifier: e.country for e in world.entities_by_name["Cordoba"]}
    assert found == {"South America": "Argentina", "Europe": "Spain", "North America": "Mexico"}


def test_it_is_as_large_as_promised(world):
    assert len(world.countries) > 200
    assert len(world.entities) >= 5_000
    assert len(world.documents) >= 10_000
    assert len(RELATIONS) + len(LINKS) >= 20
    assert {e.kind for e in world.entities} == set(KINDS)
    assert sum(f.stat().st_size for f in SHIPPED.iterdir()) < 15_000_000


def test_every_relation_is_known_of_many_countries_and_every_section_mixes_known_and_held_out(world):
    counts = Counter(r for c in world.countries.values() for r in c.facts)
    assert min(counts[r] for r in RELATIONS) >= 90
    for section, relations in SECTION_RELATIONS.items():
        assert set(relations) - HELD_OUT_RELATIONS, section
    assert len({s for s, rs in SECTION_RELATIONS.items() if set(rs) & HELD_OUT_RELATIONS}) >= 5


def test_values_are_short_plain_and_never_give_away_their_country(world):
    for country in world.countries.values():
        for relation, value in country.facts.items():
            assert value == fold(value), (country.name, relation)
            assert 0 < len(value) <= 32, (country.name, relation)
            assert not set(value) & set('.:;<>{}[]"'), (country.name, relation)
            assert not mentions(country.name, value), (country.name, relation)


def test_passage_ids_are_unique_and_ascending_and_namesakes_come_largest_first(world):
    ids = [d.passage_id for d in world.documents]
    assert ids == sorted(set(ids))
    first = world.documents_by_title["Cordoba"][0]
    assert world.entities_by_name["Cordoba"][0].country in first.text


def test_the_index_sees_values_but_not_labels(world):
    passage = world.documents_by_title["Chad culture"][0]
    assert "anthem: La Tchadienne." in passage.text
    assert "La Tchadienne" in passage.keys
    assert "anthem" not in passage.keys


def test_targets_are_answers_of_their_split_with_every_hop_count(world):
    for split, least in (("train", 3000), ("dev", 400), ("test", 800)):
        found = world.targets(split)
        assert len(found) >= least
        assert len({t.target_id for t in found}) == len(found)
        assert {t.hops for t in found} == {1, 2, 3}
        facts = {(r, v) for n in world.countries_by_split[split] for r, v in world.countries[n].facts.items()}
        assert all((t.relation, t.answer) in facts and t.split == split for t in found)
    assert {t.relation for t in world.targets("train")} == set(RELATIONS)


def test_an_answer_keeps_its_original_spelling_as_an_alias(world):
    folded = [(c, r) for c in world.countries.values() for r in c.aliases]
    assert folded
    assert all(matches(c.facts[r], (c.facts[r], c.aliases[r])) for c, r in folded)


def test_a_damaged_file_is_named(tmp_path):
    for file in SHIPPED.iterdir():
        shutil.copy(file, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["sha256"]["facts.json.gz"] = "0" * 64
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(WorldError, match=r"facts\.json\.gz"):
        load_world(tmp_path)
    (tmp_path / "facts.json.gz").write_bytes(b"torn")
    with pytest.raises(WorldError, match="cannot be read"):
        load_world(tmp_path)
    with pytest.raises(WorldError, match="cannot be read"):
        load_world(tmp_path / "absent")


@pytest.mark.parametrize(
    ("raw", "value"),
    [("São Tomé", "Sao Tome"), ("none", ""), ('"Himno"', "Himno"), ("a" * 33, ""), ("x: y", ""), ("Łódź", "Lodz"), (".td", "td")],
)
def test_short_values(raw, value):
    assert short_value(raw) == value


def test_family_names_in_capitals_are_put_right():
    assert proper_case("Frank-Walter STEINMEIER") == "Frank-Walter Steinmeier"
    assert proper_case("CHARLES III") == "Charles III"
    assert proper_case("XI Jinping") == "Xi Jinping"
