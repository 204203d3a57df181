"""Who leaves, worked out by hand."""

from sesa_core.bank.eviction import harmful, over_cap, tombstone
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.models import BankSettings
from tests.bank_support import card

SETTINGS = BankSettings(max_cards=3, min_uses_to_evict=3, protected_uses=3)


def used(card_id: str, helpful: int, hurt: int, neutral: int = 0, **fields):
    return card("anthem", card_id=card_id, retrieved_count=helpful + hurt + neutral, helpful_count=helpful, hurt_count=hurt, **fields)


def ids(cards) -> list[str]:
    return [c.card_id for c in cards]


def test_a_negative_score_after_three_retrievals_leaves():
    cards = [
        used("two-uses", 0, 2),
        used("balanced", 2, 2),
        used("harmful", 1, 2),
        used("harmful-with-neutral-uses", 0, 1, 2),
        used("helpful", 3, 1),
        used("seed", 0, 9, origin=Origin.SEED),
        used("mined", 0, 3, origin=Origin.MINED),
    ]
    assert ids(harmful(cards, SETTINGS)) == ["harmful", "harmful-with-neutral-uses", "mined"]


def test_the_cap_takes_the_lowest_scores_and_never_a_seed():
    cards = [used("a", 3, 0), used("b", 2, 2), used("c", 4, 0), used("d", 2, 1), used("seed", 0, 9, origin=Origin.SEED)]
    assert ids(over_cap(cards, SETTINGS)) == ["b", "d"]


def test_the_cap_spares_what_has_not_been_tried_yet_as_long_as_it_can():
    cards = [used("fresh", 0, 2), used("tried", 5, 0), used("also-fresh", 0, 0), used("seed", 0, 0, origin=Origin.SEED)]
    assert ids(over_cap(cards, SETTINGS)) == ["tried"]


def test_among_the_spared_the_newest_goes_first():
    cards = [used(n, 0, 0, created_boundary=b) for n, b in (("old", 1), ("older", 0), ("newest", 3), ("newer", 2))]
    assert ids(over_cap(cards, SETTINGS)) == ["newest"]


def test_a_bank_within_the_cap_loses_nothing():
    assert over_cap([used(n, 0, 0) for n in "abc"], SETTINGS) == []


def test_a_tombstone_holds_the_card_and_blocks_until_lifted_or_expired_unless_it_is_of_the_cap():
    buried = used("a", 0, 3, state=CardState.SUSPENDED)
    stone = tombstone(buried, "net_score", 4)
    assert (stone.tombstone_id, stone.card, stone.blocks(5)) == ("a@4", buried, True)
    assert not tombstone(buried, "cap", 4).blocks(5)
    lifted, expiring = (type(stone)(**{**stone.__dict__, n: 6}) for n in ("lifted_boundary", "expires_boundary"))
    assert (lifted.blocks(7), expiring.blocks(5), expiring.blocks(6)) == (False, True, False)
    assert type(stone).of(stone.row([0.0])) == stone
