"""Search or judge fail in the middle of a step: what it had in hand is dropped and counted, nothing is scored, the next step is normal.

Four countries, four proposals each. Chad and Mali need one search, of proposer and solver alike, Togo and Peru two; so the four
search calls of a step are the proposers' first and second and the solvers' first and second.
"""

from dataclasses import replace

import pytest

from sesa_core.errors import SearchUnavailable
from sesa_core.judge.server import running_server
from sesa_core.rollout.verify import JudgeVerifier
from sesa_core.training.segment import run_segment
from sesa_core.training.selfplay import SelfPlay
from sesa_core.training.step import StepRecord, play_step
from sesa_core.types import Role
from tests.core.training.test_step import CONFIG, COUNTRIES, PASSAGES, TOKENIZER, game
from tests.judge_support import judge_at
from tests.support import ListedSearch, ScriptedEngine

FAR = ("Togo", "Peru")  # two searches away
SIZES = {"targets": 4, "proposals_per_target": 4, "problems": 4, "solver_group": 4, "steps_per_segment": 2, "segments": 1}
FOUR = CONFIG.model_copy(update={"selfplay": CONFIG.selfplay.model_copy(update=SIZES)})


def next_search(country: str, prompt: str) -> str | None:
    asked = prompt.count("<information>")
    return f"<search>{country} {'economy' * asked}</search>" if asked < 1 + (country in FAR) else None


def proposer(prompt: str, seed: int) -> str:
    country = next(c for c in COUNTRIES if f"{c.lower()}ian" in prompt.split("Hops")[0])
    question = f"What is the currency of {country}?" if seed % 3 else "What is it all about?"
    return next_search(country, prompt) or f"<question>{question}</question>"


def solver(prompt: str, seed: int) -> str:
    country = next(c for c in COUNTRIES if f"of {c}?" in prompt)
    return next_search(country, prompt) or f"<answer>{country.lower() + 'ian' if seed % 2 else 'dollar'}</answer>"


class FailsAt(ListedSearch):
    """A search backend that is down at the calls of these numbers, counted from 1."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(PASSAGES)
        self.numbers = numbers

    def search(self, queries, top_k):
        found = super().search(queries, top_k)
        if self.calls in self.numbers:
            raise SearchUnavailable(f"call {self.calls} was not answered")
        return found


def four(search=None) -> SelfPlay:
    g = game(search or ListedSearch(PASSAGES), config=FOUR)
    return replace(g, engines={Role.PROPOSER: ScriptedEngine(TOKENIZER, proposer), Role.SOLVER: ScriptedEngine(TOKENIZER, solver)})


def place(trajectory) -> tuple[Role, str, int]:
    return trajectory.role, trajectory.group_id, trajectory.sample


def assert_nobody_gained(record: StepRecord, g: SelfPlay, undisturbed: StepRecord) -> None:
    """Whoever was scored earned what it earns in a step without the outage; whatever was dropped, and its proposer, earned nothing."""
    assert record.scores
    assert {key: score.reward for key, score in record.scores.items()} == {key: undisturbed.scores[key].reward for key in record.scores}
    lost = [p for p in record.proposals if p.dropped or (p.problem and p.problem.problem_id in record.round.dropped)]
    assert lost or record.round.dropped
    assert not {place(p.trajectory) for p in lost} & record.scores.keys()
    assert not {(Role.SOLVER, problem_id) for problem_id in record.round.dropped} & {key[:2] for key in record.scores}
    for role, engine in g.engines.items():
        learned_from = [s for key, s in record.scores.items() if key[0] is role and s.advantage is not None]
        assert sum(map(len, engine.batches)) == len(learned_from)


def assert_as_ever(g: SelfPlay, step: int = 2) -> None:
    record = play_step(g, step)
    assert [record.metrics[f"{role}/dropped/{cause}"] for role in Role for cause in ("search", "verification", "judge")] == [0] * 6
    assert record.metrics["proposer/dropped"] == record.metrics["solver/dropped_groups"] == 0
    assert record.metrics["solver/problems"] == 4 and len(record.evidence.failures) > 0


def test_the_undisturbed_step_makes_four_search_calls_and_drops_nothing():
    g = four(FailsAt())
    record = play_step(g, 1)
    assert g.search.calls == 4
    assert record.metrics["solver/problems"] == 4 and record.metrics["proposer/dropped"] == 0
    assert record.metrics["proposer/rejected/wrong_answer"] > 0
    assert all(engine.batches for engine in g.engines.values()), "both roles learn"


@pytest.mark.parametrize(("call", "lost"), [(1, set(COUNTRIES)), (2, set(FAR))])
def test_search_fails_while_the_proposers_play(call, lost):
    g = four(FailsAt(call))
    record = play_step(g, 1)
    assert {p.target.target_id for p in record.proposals if p.dropped} == lost
    assert record.metrics["proposer/dropped"] == record.metrics["proposer/dropped/search"] == 4 * len(lost)
    assert record.metrics["proposer/dropped/verification"] == 0
    assert {group.problem.target.target_id for group in record.round.groups} == set(COUNTRIES) - lost
    if lost == set(COUNTRIES):
        assert not record.scores and not any(engine.batches for engine in g.engines.values())
    else:
        assert_nobody_gained(record, g, play_step(four(), 1))
    assert_as_ever(g)


@pytest.mark.parametrize(("call", "lost"), [(3, set(COUNTRIES)), (4, set(FAR))])
def test_search_fails_while_the_solvers_play(call, lost):
    g = four(FailsAt(call))
    record = play_step(g, 1)
    dropped = {p.target.target_id for p in record.proposals if p.problem and p.problem.problem_id in record.round.dropped}
    assert dropped == lost
    assert record.metrics["solver/dropped_groups"] == record.metrics["solver/dropped/search"] == len(lost)
    assert record.metrics["proposer/dropped"] == 0, "their rollouts are whole; only what they would earn is not known"
    assert {f.question for f in record.evidence.failures} <= {f"What is the currency of {c}?" for c in set(COUNTRIES) - lost}
    assert_nobody_gained(record, g, play_step(four(), 1))
    assert len(g.state.pool) == 4 - len(lost), "a problem without a pass rate is not remembered"
    assert_as_ever(g)


@pytest.mark.parametrize("fault", ["error", "rate_limit", "reset", "prose", "truncated"])
def test_the_judge_fails_at_some_of_its_calls(fault):
    """A real HTTP judge, asked one question at a time: three answers, two failures, then answers again."""
    with running_server(faults=f"ok*3,{fault}*2,ok*") as url:
        g = replace(four(), verifier=JudgeVerifier(judge_at(url), 4, concurrency=1, give_up_after=10))
        record = play_step(g, 1)
        dropped = [p for p in record.proposals if p.dropped]
        assert len(dropped) == 2 and all(p.problem is None and p.rejection is None for p in dropped)
        assert record.metrics["proposer/dropped"] == record.metrics["proposer/dropped/verification"] == 2
        assert record.metrics["proposer/dropped/search"] == record.metrics["solver/dropped_groups"] == 0
        assert_nobody_gained(record, g, judged_step())
        assert_as_ever(g)


def judged_step() -> StepRecord:
    with running_server() as url:
        return play_step(replace(four(), verifier=JudgeVerifier(judge_at(url), 4, concurrency=1, give_up_after=10)), 1)


def test_the_judge_is_down_for_a_whole_step_and_back_in_the_next():
    """All sixteen questions reach it, each is asked once."""
    with running_server(faults="unavailable*16,ok*") as url:
        g = replace(four(), verifier=JudgeVerifier(judge_at(url), 4, concurrency=8, give_up_after=10))
        record = play_step(g, 1)
        assert record.metrics["proposer/dropped/verification"] == record.metrics["proposer/dropped"] == 16
        assert not record.scores and record.round.groups == () and record.evidence.failures == ()
        assert not any(engine.batches for engine in g.engines.values())
        assert_as_ever(g)


def test_a_segment_with_an_outage_in_it_is_a_whole_segment(tmp_path):
    result = run_segment(four(FailsAt(2)), tmp_path, 1)
    steps = result.evidence().steps
    assert [s.step for s in steps] == [1, 2]
    assert {f.question for f in steps[0].failures} <= {"What is the currency of Chad?", "What is the currency of Mali?"}


def test_where_all_earn_the_same_nobody_learns():
    """Every rollout of the solver is right, so that each question that is posed pays 0, as much as one that is not valid."""
    g = four()
    g.engines[Role.SOLVER].script = lambda prompt, seed: solver(prompt, 1)
    record = play_step(g, 1)
    assert record.metrics["solver/pass_rate"] == 1 and record.metrics["solver/groups/zero_variance"] == 4
    assert [record.metrics[f"{role}/groups/rows"] for role in Role] == [0, 0]
    assert [engine.policy_version for engine in g.engines.values()] == [0, 0]
    assert record.scores and all(score.advantage is None for score in record.scores.values())


def test_rewards_are_told_with_their_spread():
    """The solver is right in every second of its sixteen games: mean 1/2, deviation 1/2."""
    g = four()
    turn = iter(range(16))
    g.engines[Role.SOLVER].script = lambda prompt, seed: solver(prompt, next(turn) if wants_answer(prompt) else 0)
    metrics = play_step(g, 1).metrics
    assert (metrics["solver/reward"], metrics["solver/reward_std"]) == (0.5, 0.5)


def wants_answer(prompt: str) -> bool:
    return next_search(next(c for c in COUNTRIES if f"of {c}?" in prompt), prompt) is None
