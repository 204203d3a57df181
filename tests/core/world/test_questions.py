"""The grammar inverts, hops are counted, namesakes are ambiguous, and no question leaves its split."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.errors import ConfigError, WorldError
from sesa_core.rng import stream
from sesa_core.world.load import load_world
from sesa_core.world.questions import Chain, askable, phrase, resolve, walk
from sesa_core.world.sampling import draw_chain, draw_question, evaluation_questions, evaluation_questions_up_to
from sesa_core.world.schema import HELD_OUT_KINDS, RELATIONS, SPLITS
from sesa_core.world.text import mentions

WORLD = load_world()


def entity(name: str, qualifier: str = ""):
    return next(e for e in WORLD.entities_by_name[name] if e.qualifier == qualifier)


@pytest.mark.parametrize(
    ("text", "answer", "hops", "needed"),
    [
        ("What is the capital of Chad?", "N'Djamena", 1, [("Chad", "N'Djamena")]),
        (
            "Name the currency of the country of the city Osaka.",
            "Yen",
            2,
            [("Osaka", "Japan"), ("Japan", "Yen")],
        ),
        (
            "Give the web code of the country of the city Cordoba in Europe.",
            "es",
            2,
            [("Cordoba", "Spain"), ("Spain", "es")],
        ),
    ],
)
def test_questions_are_read_as_a_person_reads_them(text, answer, hops, needed):
    found = resolve(WORLD, text)
    assert (found.answer, found.hops, list(found.needed), found.ambiguous) == (answer, hops, needed, False)


def test_links_are_followed_from_the_inside_out():
    chain = Chain("web code", "Norway", ("export partner", "import partner"))
    text = phrase(chain)
    assert text == "What is the web code of the import partner of the export partner of Norway?"
    first = WORLD.countries["Norway"].links["export partner"]
    second = WORLD.countries[first].links["import partner"]
    assert resolve(WORLD, text).needed[:2] == (("Norway", first), (first, second))
    assert resolve(WORLD, text).hops == 3


def test_a_namesake_without_its_qualifier_is_ambiguous_and_means_the_largest():
    found = resolve(WORLD, "What is the web code of the country of the city Cordoba?")
    assert found.ambiguous
    assert found.chain.entity == WORLD.entities_by_name["Cordoba"][0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Who is the leader of Chad?",
        "What is the colour of Chad?",
        "What is the capital of Atlantis?",
        "Name the capital of the country of the person Osaka.",
        "What is the capital of the export partner of the import partner of the export partner of Chad?",
        "Name the capital of the export partner of the import partner of the country of the city Osaka.",
        "What is the capital of Chad? What is the capital of Chad?",
    ],
)
def test_other_texts_resolve_to_nothing(text):
    assert resolve(WORLD, text) is None


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), hops=st.integers(1, 3), split=st.sampled_from(SPLITS))
def test_resolve_inverts_phrase(seed, hops, split):
    rng = stream(seed, "test")
    for _ in range(10):
        question = draw_question(WORLD, split, rng, hops)
        found = resolve(WORLD, question.text)
        assert found == question.resolution
        assert found.hops == hops
        assert found.split == split
        assert not found.ambiguous
        assert not mentions(question.text, found.answer)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=120))
def test_resolve_survives_any_text(text):
    assert resolve(WORLD, f"What is the capital of {text}?") is None or text in WORLD.countries


@pytest.mark.parametrize(("split", "count"), [("dev", 300), ("test", 500)])
def test_every_entity_of_every_evaluation_question_is_in_its_split(split, count):
    questions = evaluation_questions(WORLD, split, count)
    assert len({q.text for q in questions}) == count
    assert [q.resolution.hops for q in questions[:6]] == [1, 2, 3, 1, 2, 3]
    elsewhere = {c for s in SPLITS if s != split for c in WORLD.countries_by_split[s]}
    for q in questions:
        chain = q.resolution.chain
        path = walk(WORLD, chain)
        assert not set(path) & elsewhere
        assert chain.entity is None or WORLD.split_of(chain.entity.country) == split
    share = sum(q.held_out for q in questions) / count
    assert 0.25 <= share <= 0.4


def test_evaluation_questions_are_always_the_same_and_longer_lists_begin_with_shorter_ones():
    assert evaluation_questions(WORLD, "dev", 60)[:30] == evaluation_questions(load_world(), "dev", 30)


def test_a_split_that_has_not_so_many_questions_says_how_many_it_has():
    most = len(evaluation_questions_up_to(WORLD, "dev", 10_000))
    assert 500 < most < 3 * sum(askable(WORLD, Chain(r, c)) for c in WORLD.countries_by_split["dev"] for r in RELATIONS)
    with pytest.raises(ConfigError, match=f"the dev split of this world has at most {most}") as error:
        evaluation_questions(WORLD, "dev", most + 1)
    assert error.value.key == "evaluation.questions"


@pytest.mark.parametrize(("split", "count"), [("dev", 300), ("test", 500)])
def test_no_fact_decides_an_evaluation(split, count):
    """Many chains of three hops end in the same hub; what stands there is asked for twice at most."""
    chains = [q.resolution.chain for q in evaluation_questions(WORLD, split, count)]
    assert max(Counter((walk(WORLD, c)[-1], c.relation) for c in chains).values()) == 2


def test_no_country_is_in_two_splits_and_the_shares_are_kept():
    sizes = {s: len(WORLD.countries_by_split[s]) for s in SPLITS}
    assert sum(sizes.values()) == len(WORLD.countries)
    assert sizes["test"] == round(0.25 * len(WORLD.countries))
    assert sizes["dev"] == round(0.12 * len(WORLD.countries))


def test_what_training_passages_list_stays_in_training():
    for name in WORLD.countries_by_split["train"]:
        assert all(WORLD.split_of(source) == "train" for _, source in WORLD.inverse_links.get(name, ()))


def test_dev_has_both_held_out_kinds():
    assert all(WORLD.entities_by_kind["dev", kind] for kind in HELD_OUT_KINDS)


def test_an_impossible_wish_is_refused():
    with pytest.raises(WorldError, match="no question"):
        draw_chain(WORLD, "dev", stream(0, "x"), 2, relations=("no such relation",))
