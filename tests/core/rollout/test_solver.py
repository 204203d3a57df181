from dataclasses import dataclass

from sesa_core.cards.schema import Origin, SkillCard
from sesa_core.errors import SearchUnavailable
from sesa_core.rollout.solver import CardRules, CardStyle, Deck, reward_groups, seats_for, solve, withheld_samples
from sesa_core.types import Problem, Target
from tests.core.rollout.test_loop import one_search, table

PROBLEM = Problem("p1", "What is the currency of Chad?", Target("t", "franc", 1), ("franc",), step=4)


@dataclass(frozen=True)
class Hit:
    card: SkillCard
    similarity: float


def card(name: str) -> SkillCard:
    return SkillCard(
        category="attribute_lookup", pattern="p", common_confusion="c", key_distinction="k", trigger_keywords=(name,),
        queries=("{country} economy",), card_id=name, origin=Origin.SEED,
    )  # fmt: skip


HITS = (Hit(card("currency"), 0.7), Hit(card("capital"), 0.4))
STYLE = CardStyle("compact", 100, lambda text: len(text.split()))
HALF, ALL = CardRules(STYLE, "half"), CardRules(STYLE, "none")


def test_each_card_is_withheld_from_half_of_the_group_and_the_draw_is_its_own():
    hidden = {c: withheld_samples(0, PROBLEM, c, 8, "half") for c in ("currency", "capital")}
    assert all(len(h) == 4 for h in hidden.values()) and hidden["currency"] != hidden["capital"]
    assert hidden["currency"] == withheld_samples(0, PROBLEM, "currency", 8, "half")
    assert withheld_samples(0, PROBLEM, "currency", 8, "none") == frozenset()
    assert {len(withheld_samples(s, PROBLEM, "x", 5, "half")) for s in range(20)} == {2, 3}


def test_a_seat_shows_only_the_cards_that_it_may_see():
    t = table(one_search)
    seats = seats_for(PROBLEM, Deck(HITS), 8, HALF, t)
    shown = [{c.card_id for c in s.cards} for s in seats]
    for name in ("currency", "capital"):
        assert sum(name in cards for cards in shown) == 4
    for s in seats:
        system = [m["content"] for m in s.messages if m["role"] == "system"]
        assert bool(system) == bool(s.cards)
        assert all(c.text in system[0] for c in s.cards)
    assert seats_for(PROBLEM, Deck(HITS), 2, ALL, t)[1].messages[0]["content"] == (
        '[S1] currency: search "{country} economy"\n[S2] capital: search "{country} economy"'
    )


def test_decoys_are_shown_only_to_rollouts_that_see_no_card_and_are_marked():
    t, decoy = table(one_search), Hit(card("anthem"), 0.1)
    seats = seats_for(PROBLEM, Deck(HITS[:1], (decoy,)), 8, CardRules(STYLE, "half", decoy_share=1.0), t)
    assert sorted(s.cards[0].card_id for s in seats) == ["anthem"] * 4 + ["currency"] * 4
    assert all(s.cards[0].decoy == (s.cards[0].card_id == "anthem") for s in seats)
    some = seats_for(PROBLEM, Deck((), (decoy,)), 400, CardRules(STYLE, "half", decoy_share=0.25), t)
    assert 60 <= sum(bool(s.cards) for s in some) <= 140  # 100 wanted, standard deviation 8.7
    assert not any(s.cards for s in seats_for(PROBLEM, Deck((), (decoy,)), 8, HALF, t))


def test_a_group_is_rewarded_in_order():
    t = table(one_search)
    played = reward_groups(solve([PROBLEM], {"p1": Deck(HITS)}, 4, HALF, t, 1), 1)
    (group,) = played.groups
    assert group.rewards == (1.0,) * 4 and group.pass_rate == 1.0
    assert [x.sample for x in group.trajectories] == [0, 1, 2, 3]


def test_an_outage_drops_the_whole_group():
    class Flaky:
        def search(self, queries, top_k):
            raise SearchUnavailable("down")

    seen: list[int] = []

    def script(prompt, seed):  # of the eight rollouts only the first one needs the search
        seen.append(seed)
        return "<search>Chad</search>" if len(seen) == 1 else "<answer>franc</answer>"

    played = reward_groups(solve([PROBLEM], {}, 8, HALF, table(script, search=Flaky()), 1), 1)
    assert played.groups == () and "down" in played.dropped["p1"]
