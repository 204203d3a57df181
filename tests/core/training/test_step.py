from dataclasses import dataclass, replace

import pytest

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.render import card_line
from sesa_core.config.models import RunConfig
from sesa_core.errors import SearchUnavailable
from sesa_core.judge.server import running_server
from sesa_core.rollout.pool import ProblemPool
from sesa_core.rollout.proposer import Proposal, problem_id
from sesa_core.rollout.targets import TargetSampler
from sesa_core.rollout.transcript import Transcript
from sesa_core.rollout.verify import JudgeVerifier, WorldVerifier
from sesa_core.training.segment import StopRequested, latest_complete_result, load_segment_result, run_segment
from sesa_core.training.selfplay import SelfPlay, SelfPlayState
from sesa_core.training.step import StepRecord, choose_problems, play_step, score_solver
from sesa_core.types import Group, Passage, Problem, Role, ShownCard, Target
from tests.bank_support import card, embedder
from tests.judge_support import judge_at
from tests.rollouts_support import rollout, search
from tests.support import DownSearch, ListedSearch, ScriptedEngine, small_tokenizer

COUNTRIES = ["Chad", "Mali", "Togo", "Peru"]
PASSAGES = [Passage(c, f"{c} economy", f"currency: {c.lower()}ian.") for c in COUNTRIES]
TARGETS = [Target(c, f"{c.lower()}ian", 1, relation="currency") for c in COUNTRIES]
TOKENIZER = small_tokenizer()
CONFIG = RunConfig.model_validate(
    {
        "rollout": {
            "profile": "tiny",
            "max_searches": 2,
            "max_context": 400,
            "solver": {"max_new_tokens": 60},
            "proposer": {"max_new_tokens": 80},
        },
        "selfplay": {"targets": 2, "proposals_per_target": 2, "problems": 4, "solver_group": 4, "steps_per_segment": 2, "segments": 2},
        "bank": {"enabled": False},
    }
)


@dataclass(frozen=True)
class Resolution:
    answer: str
    needed: tuple[tuple[str, str], ...]
    hops: int = 1
    ambiguous: bool = False
    splits: frozenset[str] = frozenset({"train"})


def resolve(question: str) -> Resolution | None:
    country = next((c for c in COUNTRIES if question == f"What is the currency of {c}?"), None)
    return Resolution(f"{country.lower()}ian", ((country, f"{country.lower()}ian"),)) if country else None


def proposer(prompt: str, seed: int) -> str:
    """Finds the country of the target, then asks for its currency; every second sibling forgets what to ask."""
    country = next(c for c in COUNTRIES if f"{c.lower()}ian" in prompt.split("Hops")[0])
    if "<information>" not in prompt:
        return f"<search>{country}</search>"
    return f"<question>What is the currency of {country}?</question>" if seed % 2 else "<question>What is it all about?</question>"


def solver(prompt: str, seed: int) -> str:
    """Searches, then reads the answer in three of four rollouts."""
    country = next(c for c in COUNTRIES if f"of {c}?" in prompt)
    if "<information>" not in prompt:
        return f"<search>{country}</search>"
    return f"<answer>{country.lower() + 'ian' if seed % 4 else 'dollar'}</answer>"


def game(search=None, solve=solver, config=CONFIG) -> SelfPlay:
    engines = {Role.PROPOSER: ScriptedEngine(TOKENIZER, proposer), Role.SOLVER: ScriptedEngine(TOKENIZER, solve)}
    state = SelfPlayState(TargetSampler(TARGETS, "uniform"), ProblemPool(10))
    transcript = Transcript(TOKENIZER, "tiny", 2)
    return SelfPlay(config, engines, transcript, search or ListedSearch(PASSAGES), WorldVerifier(resolve), None, state)


def test_a_step_trains_both_roles_on_the_rewards_it_counts():
    g = game()
    record = play_step(g, 1)
    valid = {p.problem.problem_id for p in record.proposals if p.problem}
    assert record.metrics["proposer/posed"] == 4
    assert (
        record.metrics["proposer/valid"]
        + record.metrics["proposer/rejected/wrong_answer"]
        + record.metrics["proposer/rejected/near_duplicate"]
        == 4
    )
    assert {grp.problem.problem_id for grp in record.round.groups} == valid
    rewards = [r for grp in record.round.groups for r in grp.rewards]
    assert record.metrics["solver/reward"] == pytest.approx(sum(rewards) / len(rewards))
    live = [grp for grp in record.round.groups if 0 < grp.pass_rate < 1]
    assert record.metrics["solver/frontier_share"] == pytest.approx(len(live) / len(record.round.groups))
    trained = g.engines[Role.SOLVER].batches
    assert sum(map(len, trained)) == 4 * len(live)
    for grp in live:
        rows = [r for r in trained[0] if r.group_id == grp.problem.problem_id]
        assert sum(r.advantage for r in rows) == pytest.approx(0, abs=1e-5)
        assert [r.advantage > 0 for r in rows] == [reward > 0 for reward in grp.rewards]


def posed(*countries: str) -> list[Proposal]:
    problems = [Problem(c, f"What is the currency of {c}?", Target(c, "x", 1), ("x",)) for c in countries]
    return [Proposal(p.target, rollout(Role.PROPOSER, 0, search("q")), problem=p) for p in problems]


def test_every_valid_question_is_played_once_and_the_pool_fills_up_to_as_many_as_are_asked_for():
    g = game()
    for country in ("Chad", "Peru", "Togo", "Mali", "Oman"):
        g.state.pool.add(posed(country)[0].problem, 0.5)
    six = posed("Chad", "Peru", "Togo", "Chad", "Cuba", "Fiji", "Iran")
    played = [(p.problem_id, p.origin) for p in choose_problems(g, six, 1)]
    assert played == [(c, "proposer") for c in ("Chad", "Peru", "Togo", "Cuba", "Fiji", "Iran")], "two more than selfplay.problems"
    few = choose_problems(g, posed("Chad"), 7)
    assert len(few) == 4 and (few[0].problem_id, few[0].origin) == ("Chad", "proposer")
    assert all((p.origin, p.step) == ("pool", 7) and p.problem_id != "Chad" for p in few[1:])
    assert len(choose_problems(game(), [], 1)) == 0, "an empty pool fills nothing"


def test_the_same_step_played_twice_is_the_same():
    first, second = play_step(game(), 3), play_step(game(), 3)
    assert first.evidence == second.evidence
    assert [p.trajectory for p in first.proposals] == [p.trajectory for p in second.proposals]


def test_a_search_outage_gives_no_reward_to_anyone():
    g = game(DownSearch())
    record = play_step(g, 1)
    assert record.round.groups == () and record.evidence.failures == () and record.evidence.uses == ()
    assert record.metrics["proposer/dropped"] == 4 and record.metrics["proposer/dropped_share"] == 1
    means = ("valid_rate", "searches", "response_tokens", "distinct_questions", "near_duplicate_share", "repetition", "reward")
    assert not {f"proposer/{name}" for name in means} & record.metrics.keys(), "nothing counts, so there is nothing to take a mean of"
    counts = ("problems", "solved", "problems_from_pool", "dropped_groups", *(f"pass_rate_bin_{i}" for i in range(5)))
    assert [record.metrics[f"solver/{name}"] for name in counts] == [0] * 9
    means = ("pass_rate", "zero_variance_share", "frontier_share", "finished_rate", "repetition", "dropped_share", "reward")
    assert not {f"solver/{name}" for name in (*means, "groups/zero_variance_share")} & record.metrics.keys()
    assert all(not e.batches for e in g.engines.values())


def test_a_judge_that_verifies_finds_the_same_problems_and_when_it_is_down_nobody_learns():
    with running_server() as url:
        record = play_step(replace(game(), verifier=JudgeVerifier(judge_at(url), 4, 8, 10)), 1)
    expected = play_step(game(), 1)
    assert [p.problem for p in record.proposals] == [p.problem for p in expected.proposals] and record.metrics["proposer/valid"]
    with running_server(faults="error*") as url:
        g = replace(game(), verifier=JudgeVerifier(judge_at(url), 4, 8, 10))
        record = play_step(g, 1)
    assert record.metrics["proposer/dropped"] and not record.metrics["proposer/valid"] and record.round.groups == ()
    assert not [p for p in record.proposals if p.dropped and (p.problem or p.rejection)]
    assert not g.engines[Role.SOLVER].batches


def test_an_outage_while_solving_gives_the_proposer_nothing():
    class FailsLater(ListedSearch):
        def search(self, queries, top_k):
            if self.calls >= 1:
                raise SearchUnavailable("down")
            return super().search(queries, top_k)

    g = game(FailsLater(PASSAGES))
    record = play_step(g, 1)
    asked = {p.problem.problem_id for p in record.proposals if p.problem}
    assert asked and set(record.round.dropped) == asked and record.round.groups == ()
    assert record.metrics["solver/dropped_groups"] == len(asked)
    assert not g.engines[Role.SOLVER].batches
    rewarded = [r for batch in g.engines[Role.PROPOSER].batches for r in batch]
    assert not rewarded or all(r.advantage == 0 for r in rewarded)


def test_a_frozen_proposer_does_not_learn():
    config = CONFIG.model_copy(update={"selfplay": CONFIG.selfplay.model_copy(update={"freeze_proposer": True})})
    g = game(config=config)
    learning = game()
    for step in (1, 2, 3):
        record, other = play_step(g, step), play_step(learning, step)
        assert proposer_scores(record)[0] == proposer_scores(other)[0], "it earns the same"
        assert set(proposer_scores(record)[1]) == {None} and record.metrics["proposer/groups/rows"] == 0
    assert g.engines[Role.PROPOSER].policy_version == 0 and g.engines[Role.SOLVER].policy_version > 0
    assert learning.engines[Role.PROPOSER].policy_version > 0, "a proposer that is not frozen learns from these very games"


def proposer_scores(record: StepRecord) -> tuple[list[float], list[float | None]]:
    """Rewards and advantages."""
    own = [score for key, score in record.scores.items() if key[0] is Role.PROPOSER]
    return [score.reward for score in own], [score.advantage for score in own]


def test_a_card_is_never_shown_to_the_problem_it_came_from_posed_or_replayed():
    """One card per country, all equally near to every question: each problem sees the others' cards and never its own."""
    sources = {problem_id(f"What is the currency of {t.target_id}?", t): f"from-{t.target_id.lower()}" for t in TARGETS}
    cards = [card("currency", card_id=c, source_problem_id=p) for p, c in sorted(sources.items(), key=lambda row: row[1])]
    snapshot = BankSnapshot(cards, embedder().embed_cards([embedding_text(c) for c in cards]), embedder(), 1)
    g = replace(game(), snapshot=snapshot)
    seen, origins = set(), set()
    for step in range(1, 6):
        for group in play_step(g, step).round.groups:
            shown = {c.card_id for t in group.trajectories for c in t.cards if not c.decoy}
            assert shown and sources[group.problem.problem_id] not in shown
            seen |= shown
            origins.add(group.problem.origin)
    assert origins == {"proposer", "pool"}
    assert seen == set(sources.values()), "each of them is shown to somebody else"


def test_cards_that_no_prompt_had_room_for_were_not_shown():
    """Three cards are found for each question and all are alike long; `card_tokens` are enough for one."""
    cards = [card("currency", card_id=f"c{i}", source_problem_id=f"p{i}") for i in range(3)]
    snapshot = BankSnapshot(cards, embedder().embed_cards([embedding_text(c) for c in cards]), embedder(), 1)
    one = len(TOKENIZER.encode(f"{card_line(cards[0], 1, CONFIG.bank.card_style)}\n", add_special_tokens=False))
    for tokens, shown in ((10 * one, 3.0), (one, 1.0), (one - 1, 0.0)):
        bank = CONFIG.bank.model_copy(update={"card_tokens": tokens, "withhold": "none"})
        metrics = play_step(replace(game(config=CONFIG.model_copy(update={"bank": bank})), snapshot=snapshot), 1).metrics
        assert metrics["bank/cards_per_question"] == shown and metrics["bank/questions_with_cards"] == (shown > 0)


def test_a_segment_leaves_a_verifiable_result(tmp_path):
    g = game()
    seen = []
    result = run_segment(g, tmp_path, 1, seen.append)
    assert (result.segment, result.attempt, result.last_step) == (1, 1, 2)
    assert load_segment_result(tmp_path / "segments" / "00001" / "attempt-1") == result
    assert result.evidence().steps[0].step == 1 and len(result.evidence().steps) == 2
    phases = [p.phase for p in seen if p.step == 1]
    assert phases[0] == "propose" and "solve" in phases and phases[-1] == "step done"
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_attempts_never_share_files_and_damaged_ones_are_passed_over(tmp_path):
    first = run_segment(game(), tmp_path, 1)
    second = run_segment(game(), tmp_path, 1)
    assert second.attempt == 2 and latest_complete_result(tmp_path, 1) == second
    (tmp_path / "segments" / "00001" / "attempt-2" / "evidence.jsonl").write_text("cut")
    assert latest_complete_result(tmp_path, 1) == first
    assert latest_complete_result(tmp_path, 2) is None


def test_a_stop_request_ends_after_the_step_and_leaves_no_result(tmp_path):
    with pytest.raises(StopRequested, match="after step 1"):
        run_segment(game(), tmp_path, 1, should_stop=lambda: True)
    assert latest_complete_result(tmp_path, 1) is None


def test_a_stop_request_after_the_last_step_does_not_throw_the_finished_segment_away(tmp_path):
    done = []
    result = run_segment(game(), tmp_path, 1, lambda p: done.append(p.step) if p.metrics else None, should_stop=lambda: done == [1, 2])
    assert latest_complete_result(tmp_path, 1) == result


def test_the_state_of_a_run_comes_back(tmp_path):
    g = game()
    play_step(g, 1)
    g.state.save(tmp_path / "state.json")
    other = game()
    other.state.load(tmp_path / "state.json")
    assert play_step(other, 2).evidence == play_step(g, 2).evidence
    assert replace(other.state, sampler=g.state.sampler, pool=g.state.pool) == replace(g.state)


def scored(baseline: str, saw: str, rewards: list[float]) -> dict[str, list[float]]:
    """Rewards by the group they are compared in; `saw` says what each rollout saw: c a card, d a decoy, - nothing."""
    shown = {"c": (ShownCard("c1", 0.5, "text"),), "d": (ShownCard("c2", 0.1, "text", decoy=True),), "-": ()}
    played = play_step(game(), 1).round.groups[0]
    trajectories = tuple(replace(played.trajectories[0], sample=i, cards=shown[s]) for i, s in enumerate(saw))
    groups: dict[str, list[float]] = {}
    for one in score_solver([Group(replace(played.problem, problem_id="p"), trajectories, tuple(rewards))], baseline):
        groups.setdefault(one.group_id, []).append(one.reward)
    return groups


def test_with_and_without_the_card_have_baselines_of_their_own():
    assert scored("arm", "cc-d", [1, 1, 0, 1]) == {"p/with": [1, 1], "p/without": [0, 1]}, "a decoy is no card of the problem"
    assert scored("group", "cc-d", [1, 1, 0, 1]) == {"p": [1, 1, 0, 1]}


@pytest.mark.parametrize("saw", ["ccc-", "---c", "cccc", "--d-"])
def test_an_arm_of_fewer_than_two_is_compared_with_the_whole_group(saw):
    assert scored("arm", saw, [1, 0, 0, 1]) == {"p": [1, 0, 0, 1]}
