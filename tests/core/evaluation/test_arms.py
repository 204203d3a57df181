"""The arms: no cards, the bank's, and as many irrelevant ones."""

import pytest

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.lesson import embedding_text
from sesa_core.config.models import BankSettings
from sesa_core.evaluation.arms import ARMS, cards_for_arm
from tests.bank_support import SECTION, card, embedder, question

CARDS = sorted((card(r) for r in SECTION), key=lambda c: c.card_id)
SNAPSHOT = BankSnapshot(CARDS, embedder().embed_cards([embedding_text(c) for c in CARDS]), embedder(), 3)
QUESTIONS = [question("anthem"), question("currency"), "zinc alloys"]
BANK = BankSettings(top_k=2)


def shown(arm: str, bank: BankSettings = BANK) -> list[list[str]]:
    return [[hit.card.card_id for hit in hits] for hits in cards_for_arm(arm, QUESTIONS, SNAPSHOT, bank)]


def test_on_shows_what_retrieval_finds_and_that_may_be_nothing():
    assert shown("on") == [["card-anthem"], ["card-currency"], []]


def test_placebo_shows_as_many_cards_as_on_and_none_of_the_same():
    on, placebo = shown("on"), shown("placebo")
    assert [len(hits) for hits in placebo] == [len(hits) for hits in on] == [1, 1, 0]
    assert all(set(a).isdisjoint(b) for a, b in zip(on, placebo, strict=True))


def test_the_placebo_card_is_the_least_similar_one():
    near = embedder().embed_cards([embedding_text(c) for c in CARDS]) @ embedder().embed_questions(QUESTIONS[:1])[0]
    assert shown("placebo")[0] == [CARDS[int(near.argmin())].card_id]


def test_off_shows_nothing_nor_does_any_arm_without_a_bank_or_without_cards_to_show():
    nothing = [()] * len(QUESTIONS)
    assert cards_for_arm("off", QUESTIONS, SNAPSHOT, BANK) == nothing
    for arm in ARMS:
        assert cards_for_arm(arm, QUESTIONS, None, BANK) == nothing
        assert cards_for_arm(arm, QUESTIONS, SNAPSHOT, BankSettings(top_k=0)) == nothing


def test_the_settings_of_the_bank_hold_in_evaluation_too():
    assert shown("on", BankSettings(top_k=2, floor=0.99)) == [[], [], []]
    assert [len(hits) for hits in shown("on", BankSettings(top_k=2, floor=-1.0))] == [2, 2, 2]


def test_an_arm_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="'half' is none of off, on, placebo"):
        cards_for_arm("half", QUESTIONS, SNAPSHOT, BANK)
