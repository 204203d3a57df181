"""What was wrong with the original, and what is here instead: one short test for each, named `fault__promise`.

Each shows the promise on real parts, as plainly as it can be shown; the thorough tests of the same matter stand beside this file
and under `tests/properties`. The order is that of the list of faults.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flows.composition import first_cards, judge_endpoint, refuse_bank_of_another_run
from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.credit import CREDIT_RULES, credited
from sesa_core.bank.holding import Holding
from sesa_core.bank.plan import plan_boundary
from sesa_core.bank.queue import PendingFailure, fit
from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.bank.state import BankState
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.load import load_config
from sesa_core.config.models import BankSettings, QueueSettings
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.errors import ConfigError
from sesa_core.judge.base import ReplyState
from sesa_core.training.step import retrieve_cards
from sesa_core.types import Problem, Target
from tests.bank_support import card, draft, embedder, failure, question, reply, segment_commit, shown, use


@pytest.fixture
def bank(tmp_path):
    """A seed and the lesson about the climate."""
    with Bank.open(tmp_path / "bank", embedder(), by="ada", run="r") as opened:
        start = [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")]
        initialise(opened.store, start, checkpoints={}, config_hash="c")
        yield opened


def in_memory(*cards) -> BankState:
    return BankState(None, "r", Holding.of(cards, embedder().embed_cards([embedding_text(c) for c in cards])))


def test_eviction_leaves_nothing__tombstones_in_dedup(bank):
    bank.evict(["card-climate"], why="misleads")
    reworded = draft("climate", pattern="A country's climate is what the question wants.")
    report = commit_segment(bank.store, segment_commit(1, failures=[failure("f", "climate")], replies=[reply("f", reworded)]))
    assert (report.added, [(r["rule"], r["other"]) for r in report.refused]) == ((), [("tombstoned", "card-climate@1")])


def test_uniform_credit__contrastive():
    """Two cards are shown together at problems that half of the rollouts solve. One helps; who saw the other fares no better."""
    helped = [use("card-anthem", f"p{i}", (1.0,) * 4, without=(0.0,) * 4, step=i) for i in range(8)]
    beside = [use("card-climate", f"p{i}", (1.0, 1.0, 0.0, 0.0), without=(1.0, 1.0, 0.0, 0.0), step=i) for i in range(8)]

    def earned(rule: str, name: str, uses) -> float:
        after = card(name)
        for each in uses:
            after = credited(after, each, CREDIT_RULES[rule])
        return after.credit_helpful - after.credit_hurt

    assert (earned("uniform", "anthem", helped), earned("uniform", "climate", beside)) == (8, 8), "as published: both get the outcome"
    assert (earned("contrastive", "anthem", helped), earned("contrastive", "climate", beside)) == (8, 0)
    assert load_config().bank.credit == "contrastive"


def test_exclude_uids_never_passed__always_passed():
    """This is the one place where training retrieves; `tests/architecture` walks the sources for any other."""
    own = card("anthem", source_problem_id="problem-7")
    snapshot = BankSnapshot([own], embedder().embed_cards([embedding_text(own)]), embedder(), 0)
    game = SimpleNamespace(config=load_config(), snapshot=snapshot)  # all that it reads of the game
    source = Problem("problem-7", question("anthem"), Target("target-1", "Marcha Real", 2), ("Marcha Real",))
    other = replace(source, problem_id="problem-8", question="What is the anthem of Norway?")
    decks = retrieve_cards(game, [source, other], step=1)
    assert [[hit.card.card_id for hit in decks[p].relevant] for p in ("problem-7", "problem-8")] == [[], ["card-anthem"]]


def test_no_score_floor__floor_per_embedder():
    only = card("anthem")
    snapshot = BankSnapshot([only], embedder().embed_cards([embedding_text(only)]), embedder(), 0)
    assert snapshot.retrieve(["Which zinc alloys resist corrosion?"], top_k=3) == [()], "none is a valid answer"
    near = snapshot.retrieve([question("anthem")], top_k=3)[0][0].similarity
    assert near >= WordLlamaEmbedder.floor == 0.32


def test_queue_cleared_before_the_judge_is_called__consumed_per_failure_on_success(bank):
    """Of three failures one gets a usable reply, one a cut one, one none at all."""
    failures = [failure(n, r) for n, r in (("a", "currency"), ("b", "religion"), ("c", "calling code"))]
    replies = [reply("a", draft("currency")), reply("b", None, ReplyState.TRUNCATED, "cut")]
    commit_segment(bank.store, segment_commit(1, failures=failures, replies=replies))
    states = {r.failure.failure_id: (r.state, r.attempts, r.consumed_boundary) for r in bank.store.read_failures()}
    assert states == {"a": ("consumed", 0, 1), "b": ("pending", 1, None), "c": ("pending", 0, None)}


def test_queue_drops_the_oldest__drops_the_least_informative_recorded(bank):
    oldest = failure("oldest", step=1, shown_cards=(shown("card-climate"),))  # cards were shown and did not help: worth most
    newest = failure("newest", "currency", step=9)
    one = QueueSettings(capacity=1)
    assert [p.failure.failure_id for p in fit([PendingFailure(oldest), PendingFailure(newest)], one)[0]] == ["oldest"]
    commit_segment(bank.store, segment_commit(1, failures=[oldest, newest], queue=one))
    assert {r.failure.failure_id: (r.state, r.reason) for r in bank.store.read_failures()} == {
        "oldest": ("pending", ""),
        "newest": ("dropped", "queue full at boundary 1"),
    }


class CountingEmbedder(WordLlamaEmbedder):
    """The real one, which remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded: list[str] = []

    def embed_cards(self, texts):
        self.embedded += texts
        return super().embed_cards(texts)


def test_whole_bank_re_embedded__new_cards_only(tmp_path):
    counting = CountingEmbedder()
    with Bank.open(tmp_path / "bank", counting, by="ada") as bank:
        initialise(bank.store, [card("anthem"), card("climate")], checkpoints={}, config_hash="c")
        assert len(counting.embedded) == 2
        commit_segment(bank.store, segment_commit(1, failures=[failure("f", "currency")], replies=[reply("f", draft("currency"))]))
        assert (len(bank.cards()), len(counting.embedded)) == (3, 3)
        assert counting.embedded[2] == embedding_text(next(c for c in bank.cards() if c.judge_model))


def test_snapshot_files__versioned_tables_with_tags_diffs_and_restore(bank):
    bank.tag("before", why="a good one")
    bank.evict(["card-climate"])
    assert [c.card_id for c in bank.cards("before")] == ["card-climate", "seed-anthem"]
    assert [c.card_id for c in bank.diff("before").removed] == ["card-climate"]
    bank.restore_to("before")
    assert bank.store.pinned("cards").equals(bank.store.pinned("cards", "before")) and bank.verify().agrees
    assert [b.kind for b in bank.boundaries()] == ["start", "person", "restore"], "nothing that happened was taken back"


def test_memory_off_by_default_set_only_in_a_shell_script__on_by_default_in_the_config_file():
    bank = load_config().bank
    assert bank.enabled and bank.top_k > 0 and len(first_cards(load_config())) >= 15
    with pytest.raises(ConfigError, match="bank.enabld"):
        load_config(overrides=["bank.enabld=true"])


def test_missing_token_or_model_silently_disables_it__refuses_to_start_naming_the_setting(monkeypatch):
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="JUDGE_API_KEY is not set; set this environment variable to the key of judge.example"):
        judge_endpoint(load_config(overrides=["judge.base_url=https://judge.example/v1"]))
    with pytest.raises(ConfigError, match="judge.model"):
        load_config(overrides=["judge.model="])


def test_no_scope_validity_trust_provenance_review__all_four_and_a_review_surface(bank):
    lesson = segment_commit(1, failures=[failure("f", "currency", step=4)], replies=[reply("f", draft("currency"))], approval=True)
    report = commit_segment(bank.store, lesson)
    new = bank.card(report.added[0]["card_id"])
    assert (new.run, new.dataset, new.task_family) == ("r", "", ""), "scope"
    assert (new.valid_from_step, new.valid_until_step, new.last_helped_step) == (4, None, None), "validity"
    assert (new.origin, new.source_problem_id, new.judge_model, new.created_step) == (Origin.DISTILLED, "problem-f", "judge-1", 4)
    assert new.state is CardState.CANDIDATE and new.content_hash and new.embedder == embedder().name, "trust"
    assert new.card_id not in [c.card_id for c in BankSnapshot.open(bank.store).cards], "a candidate is not shown"
    bank.approve([new.card_id], why="checked")
    assert new.card_id in [c.card_id for c in BankSnapshot.open(bank.store).cards]
    assert [(t["what"], t["by"], t["why"]) for t in bank.history(new.card_id)] == [("added", "", ""), ("approved", "ada", "checked")]


def test_no_tests__properties_as_tests():
    """One of them in small (the others: `tests/properties`): in whatever order things arrive, the plan is the same bytes."""
    names = ("currency", "religion", "calling code")
    failures, replies = [failure(n, n) for n in names], [reply(n, draft(n)) for n in names]
    uses = [use("card-climate", f"p{i}", (float(i % 2),), step=i) for i in range(6)]
    state, shuffler, plans = in_memory(card("climate")), random.Random(0), set()
    for _ in range(3):
        for arrived in (failures, replies, uses):
            shuffler.shuffle(arrived)
        plans.add(plan_boundary(state, segment_commit(uses=uses, failures=failures, replies=replies), embedder=embedder()).plan_hash)
    assert len(plans) == 1


def test_unseen_counters_after_a_run__used_never_used_helped_hurt_and_evicted_over_time(bank):
    """The lesson about the climate helps once, then does harm until it is evicted; the seed is never used."""
    hurts = [use("card-climate", f"p{i}", (0.0, 0.0)) for i in range(3)]
    rules = BankSettings(credit="uniform", eviction="net_score")
    commit_segment(bank.store, segment_commit(1, uses=[use("card-climate", "p", (1.0,))], bank=rules))
    commit_segment(bank.store, segment_commit(2, uses=hurts, bank=rules))
    told = [
        {k: row[k] for k in ("cards", "used", "never_used", "helped", "hurt", "evicted", "uses")} for row in bank.statistics_over_time()
    ]
    assert told == [
        {"cards": 2, "used": 0, "never_used": 2, "helped": 0, "hurt": 0, "evicted": 0, "uses": 0},
        {"cards": 2, "used": 1, "never_used": 1, "helped": 1, "hurt": 0, "evicted": 0, "uses": 1},
        {"cards": 1, "used": 0, "never_used": 1, "helped": 0, "hurt": 0, "evicted": 1, "uses": 0},
    ]


def test_actor_outlives_trainer_with_another_policys_counters__counters_carry_the_policy_and_nothing_outlives_its_run_unnoticed(
    bank, tmp_path
):
    later = replace(use("card-climate", "p1", (1.0,)), policy_version=7)
    commit_segment(bank.store, segment_commit(1, uses=[later]))
    assert (bank.card("card-climate").policy_version, bank.card("card-climate", 0).policy_version) == (7, 0)
    mine = load_config(overrides=[f"bank.uri={tmp_path / 'bank'}"])
    refuse_bank_of_another_run(mine, "r")
    with pytest.raises(ConfigError, match="it is the bank of r; give each run a bank of its own"):
        refuse_bank_of_another_run(mine, "another")
    held_by_rollouts = BankSnapshot.open(bank.store)
    with pytest.raises(ValueError, match="read-only"):
        held_by_rollouts.matrix[0, 0] = 1.0
