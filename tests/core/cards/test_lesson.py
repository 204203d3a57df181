"""When do two cards teach the same?"""

import pytest

from sesa_core.cards.lesson import difference, embedding_text, gives_away, same_lesson, same_search, shared_keywords
from tests.bank_support import card, embedder

ANTHEM = card("anthem")


def cosine(left, right) -> float:
    a, b = embedder().embed_cards([embedding_text(left), embedding_text(right)])
    return float(a @ b)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"pattern": "Asked for a country's anthem."}, None),
        ({"trigger_keywords": ("national anthem",)}, None),
        ({"trigger_keywords": ("currency",)}, "subject"),
        ({"queries": ("{country} society",)}, "search"),
        ({"queries": ("culture of {country}", "{country} songs")}, None),
        ({"pattern": "The question asks for the anthem of a country in 2 hops."}, "number"),
        ({"pattern": "The question does not ask for the anthem of a country."}, "negation"),
    ],
)
def test_difference_names_what_sets_two_cards_apart(changes, expected):
    other = card("anthem", card_id="other", **changes)
    assert difference(ANTHEM, other) == expected
    assert difference(other, ANTHEM) == expected


def test_two_hop_and_three_hop_differ_in_words_and_in_digits():
    two, three = (card("anthem", pattern=f"A {n}-hop question about an anthem.") for n in ("two", "3"))
    assert difference(two, three) == "number"
    assert difference(two, card("anthem", pattern="A 2-hop question about an anthem.")) is None


def test_the_same_relation_with_the_same_searches_is_one_lesson_whatever_its_words_or_category():
    other = card("anthem", pattern="Where the song of a state is wanted.", category="evidence_check")
    assert same_lesson(ANTHEM, other)
    assert not same_lesson(ANTHEM, card("currency", section="culture"))
    assert not same_lesson(ANTHEM, card("anthem", section="society"))


def test_cards_of_two_relations_in_one_sentence_frame_stay_below_the_threshold():
    assert cosine(ANTHEM, card("currency", section="culture")) < embedder().dedup_threshold
    assert cosine(ANTHEM, card("anthem", pattern="Asked for a country's anthem.")) >= embedder().dedup_threshold


def test_placeholders_do_not_make_a_search():
    assert same_search("{country} culture", "{state} culture")
    assert not same_search("{country} culture", "{country} economy")
    assert not same_search("{city} {region}", "{city} course")


def test_shared_keywords_count_against_the_shorter_list():
    left = card("anthem", trigger_keywords=("anthem", "song", "hymn"))
    assert shared_keywords(left, card("anthem", trigger_keywords=("song", "anthem", "flag", "motto"))) == pytest.approx(2 / 3)


def test_an_answer_of_everyday_words_counts_only_as_it_is_written():
    assert gives_away("The anthem is Marcha Real, they say", "marcha real")
    assert not gives_away("The year 1905", "5")
    assert not gives_away("Search in the section", ".in")
    assert gives_away("It ends in .in mostly", ".in")
    assert not gives_away("Do it at once", "it")
