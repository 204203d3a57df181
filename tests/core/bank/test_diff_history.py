"""Reading what was: any boundary by any of its names, what changed between two, what happened to a card, what it all came to."""

import pytest

from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.explain import retrieval
from sesa_core.bank.places import find_boundary, in_force_at, kept_segments
from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.models import BankSettings
from sesa_core.errors import BankError, ConfigError, UserError
from tests.bank_support import card, draft, embedder, failure, reply, segment_commit, use


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """0 the start · 1 segment 1 (steps to 10): climate helped · 2 ada suspends · 3 segment 2 (to step 20): climate evicted,
    calling code admitted · 4 ada restores climate."""
    start = [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate"), card("currency", dataset="nq")]
    with Bank.open(tmp_path_factory.mktemp("told") / "bank", embedder(), by="ada", run="run") as opened:
        store = opened.store
        initialise(store, start, checkpoints={}, config_hash="c")
        commit_segment(store, at_step(segment_commit(1, uses=[use("card-climate", "p0", (1.0,), step=4)]), 10))
        opened.suspend(["seed-anthem"], why="a trial")
        uses = [use("card-climate", f"p{i}", (0.0,), step=14) for i in range(1, 5)]
        failures, replies = [failure("f", "calling code", step=20)], [reply("f", draft("calling code"))]
        settings = BankSettings(credit="uniform", eviction="net_score")
        commit_segment(store, at_step(segment_commit(2, uses=uses, failures=failures, replies=replies, bank=settings), 20))
        opened.restore_card("card-climate", why="one more try", keep_counters=True)
        opened.tag("before", 1, why="worth keeping")
        yield opened


def at_step(commit, last_step: int):
    """The same commit, of a segment whose last step was that one."""
    from dataclasses import replace

    from sesa_core.types import SegmentEvidence, StepEvidence

    evidence = SegmentEvidence(commit.segment, commit.attempt, (*commit.evidence.steps, StepEvidence(last_step)))
    return replace(commit, evidence=evidence)


@pytest.mark.parametrize(
    ("at", "boundary"),
    [
        (None, 4),
        (1, 1),
        ("3", 3),
        ("run.b-00002", 2),
        ("before", 1),
        ("step:1", 0),
        ("step:10", 0),
        ("step 11", 2),
        ("step:20", 2),
        ("step:21", 4),
        ("step:0", 0),
    ],
)
def test_a_boundary_has_many_names(bank, at, boundary):
    assert bank.store.boundary(at).boundary_id == boundary


@pytest.mark.parametrize("at", ["nope", "9", 9, "step:", "run.b-00009", "step:x"])
def test_an_unknown_boundary_is_refused_with_all_that_are_known(bank, at):
    with pytest.raises(ConfigError, match="boundaries are 0 to 4, tags run.b-00000 to run.b-00004, named before; step:25 means"):
        bank.cards(at)


def test_a_bank_without_boundaries_names_none(tmp_path):
    assert in_force_at(3, []) is None
    with pytest.raises(ConfigError, match="there are no boundaries yet"):
        find_boundary("x", [], {})


def test_what_changed_between_two_boundaries(bank):
    found = bank.diff("before", 3)
    assert [c.pattern for c in found.added] == ["The question asks for the calling code of a country."]
    assert [c.card_id for c in found.removed] == ["card-climate"] and found.buried == ("card-climate@3",) and found.lifted == ()
    assert [(c.card_id, dict(c.fields), dict(c.counters)) for c in found.changed] == [
        ("seed-anthem", {"state": ("active", "suspended")}, {})
    ]
    start = bank.diff(0, 1)
    assert [(c.card_id, c.counters["retrieved_count"], c.counters["helpful_count"]) for c in start.changed] == [
        ("card-climate", (0, 1), (0, 1))
    ]
    assert start.changed[0].fields == {} and "hurt_count" not in start.changed[0].counters
    back = bank.diff(3)
    assert [c.card_id for c in back.added] == ["card-climate"] and back.lifted == ("card-climate@3",)
    same = bank.diff(2, 2)
    assert not any((same.added, same.removed, same.changed, same.buried, same.lifted))
    assert set(found.as_json()) == {"added", "removed", "changed", "buried", "lifted"}


def test_a_cards_history_tells_everything_once_in_order(bank):
    told = bank.history("card-climate")
    assert [(t["boundary"], t["what"], t["step"]) for t in told] == [
        (0, "added", None),
        (1, "use", 4),
        *[(3, "use", 14)] * 4,
        (3, "evicted", None),
        (4, "restored", None),
    ]
    assert told[1]["details"]["outcome"] == "helpful" and told[5]["details"]["outcome"] == "hurt"
    assert (told[6]["kind"], told[6]["details"]["reason"], told[6]["details"]["net"]) == ("segment", "net_score", -3)
    assert (told[7]["kind"], told[7]["by"], told[7]["why"]) == ("person", "ada", "one more try")
    assert [t["what"] for t in bank.history("card-climate", 1)] == ["added", "use"]


def test_the_banks_numbers_by_category_and_origin(bank):
    found = bank.statistics(3)
    assert found["bank"] == {
        **{"cards": 3, "used": 0, "never_used": 3, "helped": 0, "hurt": 0, "evicted": 1},
        **{"uses": 0, "uses_that_helped": 0, "uses_that_hurt": 0},
    }
    assert found["states"] == {"active": 2, "suspended": 1} and found["evicted_by_reason"] == {"net_score": 1}
    assert {n: v["cards"] for n, v in found["origins"].items()} == {"distilled": 2, "seed": 1}
    assert found["origins"]["distilled"]["evicted"] == 1 and found["categories"]["attribute_lookup"]["cards"] == 3
    now = bank.statistics()
    assert (now["lifted"], now["evicted_by_reason"], now["bank"]["hurt"], now["bank"]["uses"]) == (1, {}, 1, 5)
    assert bank.statistics(1)["bank"]["helped"] == 1


def test_search_tells_what_retrieval_shows_and_why_not_the_others(bank):
    question = "What is the climate of Spain?"
    hits = bank.search(question)
    shown = BankSnapshot.open(bank.store).retrieve([question], **retrieval(bank.settings))[0]
    assert [(h.card.card_id, h.place, h.similarity) for h in hits if h.place] == [
        (r.card.card_id, i, r.similarity) for i, r in enumerate(shown, start=1)
    ]
    first = hits[0]
    assert (first.card.card_id, first.place, first.trigger_bonus, first.floor) == ("card-climate", 1, 0.15, 0.32)
    assert first.utility == pytest.approx(-3 / (5 + 4)) and first.near == pytest.approx(first.similarity + 0.15)
    others = {h.card.card_id: h.why_not for h in hits if h.place is None}
    assert others["seed-anthem"] == "suspended" and others["card-currency"] == "below the floor of 0.32"
    assert bank.search(question, 3)[0].place is None, "the card had been evicted then"


def test_search_names_scope_and_rank_as_reasons(tmp_path):
    with Bank.open(tmp_path / "b", embedder(), settings=BankSettings(top_k=1)) as bank:
        cards = [card("climate"), card("climate", card_id="other", section="weather"), card("currency", dataset="nq")]
        cards.append(card("religion", state=CardState.CANDIDATE))
        initialise(bank.store, cards, checkpoints={}, config_hash="c")
        reasons = {h.card.card_id: h.why_not for h in bank.search("the climate and currency of Spain", dataset="hotpot")}
        assert sorted(reasons.values()) == ["", "candidate", "of dataset nq", "others rank higher"]
        assert reasons["card-currency"] == "of dataset nq" and reasons["card-religion"] == "candidate"


def test_an_empty_bank_finds_nothing(tmp_path):
    with Bank.open(tmp_path / "b", embedder()) as bank:
        assert bank.search("anything") == [] and bank.statistics()["bank"]["cards"] == 0


# -- tags


def test_checkpoints_stay_for_the_newest_segments_and_for_what_has_a_name(bank):
    rows = bank.boundaries()  # segments 1 and 2 are boundaries 1 and 3
    assert kept_segments(rows, {}, 1) == {(2, 1)}
    assert kept_segments(rows, {"x": 2}, 1) == {(1, 1), (2, 1)}, "boundary 2 is a person's: its policies are those of segment 1"
    assert kept_segments(rows, {"x": 4, "y": 0}, 1) == {(2, 1)}, "boundary 0 has no checkpoints"


def test_a_tag_names_one_boundary_until_it_is_taken_away(bank):
    assert [(t["name"], t["boundary_id"], t["by"], t["why"]) for t in bank.tags()] == [("before", 1, "ada", "worth keeping")]
    with pytest.raises(ConfigError, match="'before' is not allowed; it names boundary 1 already"):
        bank.tag("before", 2)
    assert bank.tag("now") == 4
    bank.untag("now")
    with pytest.raises(ConfigError, match="the tags are before"):
        bank.untag("now")


@pytest.mark.parametrize("name", ["", "7", "step:3", "step3", "Upper", "run.b-00001", "a b", "x" * 64, "-x"])
def test_a_tag_cannot_be_taken_for_something_else(bank, name):
    with pytest.raises(ConfigError, match="tag: "):
        bank.tag(name)


def test_a_tag_needs_a_boundary_and_a_writer(bank, tmp_path):
    with Bank.open(tmp_path / "b", embedder()) as empty, pytest.raises(BankError, match="no boundary yet"):
        empty.tag("x")
    with Bank.open(bank.store.uri, embedder(), write=False) as reader:
        assert len(reader.cards("before")) == 3
        with pytest.raises(BankError, match="opened for reading"):
            reader.tag("x")


def test_a_purged_or_unknown_card_has_no_card_page(bank):
    with pytest.raises(UserError, match="was evicted at boundary 3"):
        bank.card("card-climate", 3)
    assert bank.card("card-climate").hurt_count == 4
