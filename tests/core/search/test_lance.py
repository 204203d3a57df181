"""LanceSearch: ideal queries hit, ties are settled by id, a damaged index raises, a second build does nothing."""

import pickle
import shutil
import threading
from collections.abc import Iterator

import pytest

from sesa_core.errors import ConfigError, SearchUnavailable
from sesa_core.search.lance import LanceSearch, build_index
from sesa_core.world.load import load_world
from sesa_core.world.passages import Document
from sesa_core.world.schema import KINDS, SECTIONS

WORLD = load_world()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_index(tmp_path_factory.mktemp("search") / "index", WORLD.documents)


@pytest.fixture(scope="module")
def search(folder):
    return LanceSearch(folder)


def test_a_section_is_found_by_its_country_and_name(search):
    [[passage]] = search.search(["Chad culture"], 1)
    assert passage.title == "Chad culture"
    assert "anthem: La Tchadienne." in passage.text


def test_the_words_of_a_question_do_not_find_the_section(search):
    [[passage]] = search.search(["anthem of Chad"], 1)
    assert passage.title != "Chad culture"


def test_a_value_leads_to_its_passage(search):
    [[passage]] = search.search(["La Tchadienne"], 1)
    assert passage.title == "Chad culture"


def test_namesakes_tie_and_the_smaller_id_wins_unless_the_query_says_which(search):
    found = search.search(["Cordoba", "Cordoba Europe", "Cordoba North America"], 3)
    assert [p.title for p in found[0]] == ["Cordoba"] * 3
    assert len({p.score for p in found[0]}) == 1
    assert [p.passage_id for p in found[0]] == sorted(p.passage_id for p in found[0])
    assert "Argentina" in found[0][0].text
    assert "Spain" in found[1][0].text
    assert "Mexico" in found[2][0].text


def test_fewer_than_one_in_a_hundred_ideal_queries_miss(search):
    wanted = {f"{n} {s}": f"{n} {s}" for n in list(WORLD.countries)[::8] for s in SECTIONS}
    wanted |= {f"{e.name} {KINDS[e.kind].section or e.qualifier}".strip(): f" {e.country}" for e in WORLD.entities[::60]}
    found = search.search(list(wanted), 1)
    misses = [q for q, hit in zip(wanted, found, strict=True) if not hit or wanted[q] not in f" {hit[0].title} {hit[0].text}"]
    assert len(misses) < 0.01 * len(wanted), misses


def test_batches_answer_like_single_queries_and_in_order(search, folder):
    queries = ["Chad economy", "", "Cordoba", "zzqqx", "Chad economy", "!?"]
    together = search.search(queries, 2)
    alone = [LanceSearch(folder).search([q], 2)[0] for q in queries]
    assert together == alone
    assert together[1] == together[3] == together[5] == []
    assert len(together[0]) == 2


def test_results_can_be_changed_by_the_caller_without_harm(search):
    search.search(["Chad culture"], 1)[0].clear()
    assert search.search(["Chad culture"], 1)[0]


def test_the_cache_stays_within_its_bound(folder):
    small = LanceSearch(folder, cache_size=2)
    for query in ("Chad", "Mali", "Peru", "Chad"):
        small.search([query], 1)
    assert len(small._cache) == 2


def test_it_works_from_many_threads_and_after_pickling(search):
    copy = pickle.loads(pickle.dumps(search))
    names = list(WORLD.countries)[:12]
    results: dict[int, list] = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: copy.search(names, 1)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[i] == search.search(names, 1) for i in range(4))


def test_a_second_build_leaves_the_index_alone(folder):
    before = sorted((p.name, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    assert build_index(folder, []) == folder
    assert sorted((p.name, p.stat().st_mtime_ns) for p in folder.rglob("*")) == before


def test_a_killed_build_leaves_nothing_that_looks_finished(tmp_path):
    aside = tmp_path / ".index.999.building"
    aside.mkdir(parents=True)
    (aside / "half").write_text("torn")
    folder = build_index(tmp_path / "index", WORLD.documents[:50])
    assert LanceSearch(folder).search([WORLD.documents[0].title], 1)[0]


def test_passages_may_come_as_a_stream_longer_than_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("sesa_core.search.lance._BATCH_ROWS", 100)
    folder = build_index(tmp_path / "index", iter(WORLD.documents[:250]))
    for document in (WORLD.documents[0], WORLD.documents[249]):
        assert LanceSearch(folder).search([document.title], 1)[0][0].title == document.title
    assert len(list((folder / "passages.lance" / "data").iterdir())) == 3, "100, 100 and 50 passages"


def test_what_a_stream_raises_comes_through_and_leaves_nothing(tmp_path):
    def torn() -> Iterator[Document]:
        yield WORLD.documents[0]
        raise ConfigError("world.path", "mine", "the corpus was changed")

    with pytest.raises(ConfigError, match="was changed"):
        build_index(tmp_path / "index", torn())
    assert not list(tmp_path.iterdir())


def test_a_missing_index_raises(tmp_path):
    with pytest.raises(SearchUnavailable):
        LanceSearch(tmp_path / "absent")


def test_a_damaged_index_raises_and_never_returns_nothing(tmp_path):
    folder = build_index(tmp_path / "index", WORLD.documents[:200])
    opened = LanceSearch(folder)
    for part in (folder / "passages.lance").iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    with pytest.raises(SearchUnavailable):
        opened.search(["Chad culture"], 1)
