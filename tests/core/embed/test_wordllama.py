"""The embedded default: unit vectors, offline, and thresholds that separate relations."""

import pickle

import numpy as np

from sesa_core.cards.lesson import embedding_text
from tests.bank_support import SECTION, card, embedder, question


def test_vectors_have_unit_length_even_for_text_without_a_known_token():
    vectors = embedder().embed_cards(["the anthem of a country", "", "\u4e2d"])
    assert vectors.shape == (3, 256) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embedder().embed_questions([]).shape == (0, 256)


def test_a_text_has_the_same_vector_alone_and_in_any_batch():
    texts = ["anthem", "a much longer text about the currency of a country that pads the batch", question("anthem")]
    together = embedder().embed_questions(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_array_equal(embedder().embed_questions([text])[0], row)


def test_a_question_finds_the_card_of_its_relation_and_the_floor_keeps_the_others_out():
    cards = [card(relation) for relation in SECTION]
    near = embedder().embed_questions([question(r) for r in SECTION]) @ embedder().embed_cards([embedding_text(c) for c in cards]).T
    assert (np.diag(near) > embedder().floor).all()
    others = near[~np.eye(len(SECTION), dtype=bool)]
    assert (others < embedder().floor).all()


def test_it_travels_to_another_process():
    again = pickle.loads(pickle.dumps(embedder()))
    np.testing.assert_array_equal(again.embed_questions(["anthem"]), embedder().embed_questions(["anthem"]))
