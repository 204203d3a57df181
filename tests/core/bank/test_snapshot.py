"""What a rollout is shown, and what it is never shown."""

import pickle

import numpy as np
import pytest

from sesa_core.bank.snapshot import PRIOR_USES, BankSnapshot, utility
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import SkillCard
from sesa_core.rng import stream
from tests.bank_support import SECTION, card, embedder, question

CARDS = sorted((card(r) for r in SECTION), key=lambda c: c.card_id)
ASKED = question("anthem")


def snapshot(*cards: SkillCard) -> BankSnapshot:
    cards = sorted(cards or CARDS, key=lambda c: c.card_id)
    return BankSnapshot(cards, embedder().embed_cards([embedding_text(c) for c in cards]), embedder(), 3)


def ids(found) -> list[str]:
    return [hit.card.card_id for hit in found]


def test_the_card_of_the_asked_relation_comes_first_with_its_similarity():
    hits = snapshot().retrieve([ASKED], top_k=3, floor=-1.0)[0]
    assert ids(hits)[0] == "card-anthem" and len(hits) == 3
    similarities = [h.similarity for h in hits]
    assert similarities == sorted(similarities, reverse=True)
    direct = embedder().embed_questions([ASKED]) @ embedder().embed_cards([embedding_text(card("anthem"))]).T
    assert similarities[0] == pytest.approx(float(direct[0, 0]), abs=1e-5)


def test_below_the_floor_nothing_is_shown_and_that_is_an_answer():
    assert ids(snapshot().retrieve([ASKED], top_k=3)[0]) == ["card-anthem"]
    assert snapshot().retrieve(["zinc alloys"], top_k=3) == [()]
    assert snapshot().retrieve([ASKED], top_k=3, floor=0.99) == [()]
    assert snapshot().retrieve([ASKED], top_k=0) == [()]
    assert snapshot().retrieve([], top_k=3) == []


def test_a_trigger_in_the_question_moves_the_floor_by_half_of_its_weight():
    plain = snapshot().retrieve([ASKED], top_k=9, floor=-1.0)[0]
    near = {h.card.card_id: h.similarity for h in plain}
    asked, runner_up = near["card-anthem"], max(v for k, v in near.items() if k != "card-anthem")
    between = asked + 0.1  # above every cosine: only the trigger's half weight lifts a card over it
    assert snapshot().retrieve([ASKED], top_k=9, floor=between) == [()]
    lifted = snapshot().retrieve([ASKED], top_k=9, floor=between, trigger_weight=0.3)[0]
    assert ids(lifted) == ["card-anthem"] and lifted[0].similarity == asked
    assert ids(snapshot().retrieve([ASKED], top_k=9, floor=runner_up - 0.1, trigger_weight=0.3)[0]) == ["card-anthem"]


def test_a_trigger_counts_as_whole_words_only():
    bank = snapshot(card("anthem"))
    low = bank.retrieve(["Which anthems are there?"], top_k=1, floor=-1.0)[0][0].similarity
    assert bank.retrieve(["Which anthems are there?"], top_k=1, floor=low, trigger_weight=0.3) == [()]


def test_a_card_is_not_shown_to_the_question_it_came_from():
    bank = snapshot(card("anthem", source_problem_id="p-1"), card("currency"))
    assert ids(bank.retrieve([ASKED], top_k=3, exclude_sources=[{"p-1"}])[0]) == []
    assert ids(bank.retrieve([ASKED], top_k=3, exclude_sources=[{"p-2"}])[0]) == ["card-anthem"]


def test_nor_to_a_question_that_is_nearly_the_same():
    bank = snapshot(card("anthem", source_problem_id="p-1", example_question=ASKED))
    reworded = "what is, of the country of the city Córdoba in Europe, the anthem"
    assert bank.retrieve([reworded], top_k=3, exclude_sources=[{"p-2"}]) == [()]
    other_city = ASKED.replace("Cordoba", "Leon")
    assert ids(bank.retrieve([other_city], top_k=3, exclude_sources=[{"p-2"}])[0]) == ["card-anthem"]
    assert ids(bank.retrieve([ASKED], top_k=3)[0]) == ["card-anthem"]  # serving has no source to leave out


def test_a_seed_is_never_taken_for_a_questions_own_card():
    assert ids(snapshot(card("anthem", source_problem_id="")).retrieve([ASKED], top_k=1, exclude_sources=[{""}])[0]) == ["card-anthem"]


def test_in_training_a_card_that_holds_the_answer_is_left_out():
    spoiled = card("anthem", card_id="spoiled", key_distinction="For the anthem of Spain it is the MARCHA Real.")
    bank = snapshot(spoiled, card("anthem"))
    assert ids(bank.retrieve([ASKED], top_k=1, floor=-1.0, forbidden_answers=[["Marcha Real"]])[0]) == ["card-anthem"]
    assert set(ids(bank.retrieve([ASKED], top_k=2, floor=-1.0)[0])) == {"spoiled", "card-anthem"}


def test_exclusions_belong_to_their_own_question():
    bank = snapshot(card("anthem", source_problem_id="p-1"))
    found = bank.retrieve([ASKED, ASKED], top_k=1, exclude_sources=[{"p-1"}, set()])
    assert [ids(f) for f in found] == [[], ["card-anthem"]]


def test_ties_are_decided_by_card_id():
    twins = [card("anthem", card_id=name) for name in ("c", "a", "b")]
    assert ids(snapshot(*twins).retrieve([ASKED], top_k=3)[0]) == ["a", "b", "c"]


def test_neither_batch_nor_order_changes_what_is_found():
    questions = [question(r) for r in SECTION]
    together = snapshot().retrieve(questions, top_k=3, floor=0.1)
    assert snapshot().retrieve(questions[::-1], top_k=3, floor=0.1)[::-1] == together
    assert [snapshot().retrieve([q], top_k=3, floor=0.1)[0] for q in questions] == together


@pytest.mark.parametrize("top_k", [1, 3, 40, 500])
def test_in_a_large_bank_the_first_are_those_of_a_full_sort(top_k):
    """With ties by the dozen, weights that overturn the cosine, and a floor that many miss."""
    rng = stream(0, "large bank")
    cards = [card("anthem", card_id=f"card-{i:03d}", retrieved_count=9, helpful_count=int(rng.integers(10))) for i in range(400)]
    matrix = rng.standard_normal((40, 256))[rng.integers(40, size=400)] + embedder().embed_questions([ASKED])[0] * 20
    matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    near = np.round((matrix.astype(np.float64) * embedder().embed_questions([ASKED])[0].astype(np.float64)).sum(axis=1), 6)
    floor = float(np.median(near))
    rank = near + 0.3 * np.array([utility(c) for c in cards])
    order = [i for i in np.lexsort((np.arange(400), -rank)) if near[i] >= floor][:top_k]
    found = BankSnapshot(cards, matrix, embedder(), 0).retrieve([ASKED], top_k=top_k, floor=floor, utility_weight=0.3)[0]
    assert ids(found) == [cards[i].card_id for i in order]


def test_utility_is_shrunk_and_moves_the_rank_only_when_weighted():
    good = card(
        "anthem", card_id="good", retrieved_count=4, helpful_count=4, pattern="The question asks for an anthem, song or hymn of a state."
    )
    plain = card("anthem", card_id="plain")
    assert utility(good) == 4 / (4 + PRIOR_USES) == 0.5 and utility(plain) == 0
    bank = snapshot(good, plain)
    unweighted = bank.retrieve([ASKED], top_k=2)[0]
    gap = unweighted[0].similarity - unweighted[1].similarity
    assert ids(unweighted) == ["plain", "good"] and 0 < gap < 0.2
    weighted = bank.retrieve([ASKED], top_k=2, utility_weight=3 * gap)[0]
    assert ids(weighted) == ["good", "plain"]
    assert {h.card.card_id: h.similarity for h in weighted} == {h.card.card_id: h.similarity for h in unweighted}


def test_utility_is_the_uplift_where_it_was_compared():
    favoured = card("anthem", card_id="favoured", retrieved_count=4, helpful_count=4, uplift_n=4, uplift_mean=-0.2)
    assert utility(favoured) == -0.2, "shown at easy problems, and yet a harm"
    assert utility(card("anthem", retrieved_count=4, helpful_count=4)) == 0.5


def test_placebo_is_as_many_of_the_least_similar():
    bank = snapshot()
    near = embedder().embed_questions([ASKED]) @ bank.matrix.T
    expected = [bank.cards[i].card_id for i in np.argsort(near[0])[:2]]
    assert [ids(p) for p in bank.placebo([ASKED, ASKED], [2, 0])] == [expected, []]


def test_nothing_can_change_it_and_it_travels():
    bank = snapshot()
    with pytest.raises(ValueError, match="read-only"):
        bank.matrix[0, 0] = 1.0
    again = pickle.loads(pickle.dumps(bank))
    assert again.retrieve([ASKED], top_k=3) == bank.retrieve([ASKED], top_k=3)
    assert (again.bank_version, len(again)) == (3, len(CARDS))


def test_a_bank_without_cards_retrieves_nothing():
    empty = BankSnapshot([], np.zeros((0, 256), np.float32), embedder(), None)
    assert empty.retrieve([ASKED], top_k=3) == [()]
    assert empty.placebo([ASKED], [3]) == [()]


def test_decoys_are_drawn_from_irrelevant_cards_alone():
    near = {h.card.card_id: h.similarity for h in snapshot().retrieve([ASKED], top_k=99, floor=-1.0)[0]}
    allowed = {i for i, v in near.items() if v < embedder().floor and i != "card-anthem"}
    drawn = {h.card.card_id for seed in range(40) for h in snapshot().decoys([ASKED], [2], np.random.default_rng(seed))[0]}
    assert drawn == allowed
    assert snapshot().decoys([ASKED], [0], np.random.default_rng(0)) == [()]
    again = [ids(snapshot().decoys([ASKED], [3], np.random.default_rng(7))[0]) for _ in range(2)]
    assert again[0] == again[1] and len(set(again[0])) == 3
