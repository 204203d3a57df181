import json
from collections import Counter

import numpy as np
import pytest

from sesa_core.rng import stream
from sesa_core.rollout.pool import ProblemPool
from sesa_core.rollout.targets import TargetSampler
from sesa_core.types import Passage, Problem, Target

TARGETS = [Target(f"{r}{h}{i}", f"answer {r}{h}{i}", h, relation=r) for r in ("capital", "currency") for h in (1, 2) for i in range(50)]


def test_frontier_sampling_prefers_undecided_buckets():
    sampler = TargetSampler(TARGETS, "frontier")
    for target in TARGETS:
        for _ in range(5):
            sampler.record(target, 0.5 if target.relation == "capital" else 1.0)
    drawn = Counter(t.relation for s in range(100) for t in sampler.draw(8, stream(0, "t", s)))
    assert drawn["capital"] > 5 * drawn["currency"] > 0


def test_pass_rates_are_exponential_averages_and_survive_a_restart():
    sampler = TargetSampler(TARGETS, "frontier")
    sampler.record(TARGETS[0], 1.0)
    assert sampler.state() == {"capital/1": pytest.approx(0.7 * 0.5 + 0.3)}
    other = TargetSampler(TARGETS, "frontier")
    other.restore(json.loads(json.dumps(sampler.state())))
    assert [t.target_id for t in other.draw(8, stream(1, "x"))] == [t.target_id for t in sampler.draw(8, stream(1, "x"))]


def test_draws_are_distinct_and_end_when_there_are_no_more():
    few = TARGETS[:3]
    assert sorted(t.target_id for t in TargetSampler(few, "uniform").draw(8, stream(0, "t"))) == sorted(t.target_id for t in few)
    with pytest.raises(ValueError, match="no targets"):
        TargetSampler([], "uniform")


def problem(i: int) -> Problem:
    return Problem(f"p{i}", f"question {i}?", TARGETS[i], (TARGETS[i].answer,), (Passage("a", "b", "c"),), step=i)


def test_the_pool_prefers_half_solved_problems_and_never_repeats():
    pool = ProblemPool(reset_steps=10)
    for i in range(10):
        pool.add(problem(i), 0.5 if i < 5 else 1.0)
    counts = Counter(p.problem_id for s in range(200) for p in pool.draw(2, ["question 0?"], stream(0, s)))
    assert counts["p0"] == 0
    assert sum(counts[f"p{i}"] for i in range(1, 5)) > 3 * sum(counts[f"p{i}"] for i in range(5, 10))
    assert len({p.problem_id for p in pool.draw(99, [], stream(0, "all"))}) == 10
    assert pool.draw(0, [], stream(0, "none")) == []


def test_the_pool_is_cleared_every_reset_steps_and_restored_exactly():
    pool = ProblemPool(reset_steps=10)
    pool.begin_step(1)
    pool.add(problem(1), 0.25)
    pool.begin_step(10)
    other = ProblemPool(reset_steps=10)
    other.restore(json.loads(json.dumps(pool.state())))
    assert other.draw(1, [], np.random.default_rng(0)) == [problem(1)]
    pool.begin_step(11)
    assert len(pool) == 0
