import pytest

from sesa_core.training.evidence import append_step, collect, read_segment
from sesa_core.types import Ending, Group, Passage, Problem, Role, ShownCard, Target, Trajectory, Turn, TurnKind

SHORT, LONG = Passage("a", "A", "short"), Passage("b", "B", "a much longer text")
PROBLEM = Problem("p1", "Which?", Target("t1", "gold", 2), ("gold",), (SHORT,), step=3)
CARD, OTHER = ShownCard("c1", 0.6, "[S1] x"), ShownCard("c2", 0.5, "[S2] y")


def rollout(sample, answer, passages=(SHORT,), cards=(), ending=Ending.FINISHED) -> Trajectory:
    turns = [Turn(TurnKind.SEARCH, "q", tuple(passages))] if passages else []
    if answer is not None:
        turns.append(Turn(TurnKind.ANSWER, answer))
    return Trajectory(Role.SOLVER, "p1", sample, "", (1,), (2,), (1,), (0.0,), tuple(turns), ending, tuple(cards), policy_version=7)


GROUP = Group(
    PROBLEM,
    (
        rollout(0, "gold", cards=[CARD]),
        rollout(1, "bad", passages=[SHORT], cards=[CARD, OTHER]),
        rollout(2, "bad", passages=[SHORT, LONG]),
        rollout(3, None, cards=[OTHER], ending=Ending.MALFORMED),
    ),
    (1.0, 0.0, 0.0, 0.0),
)


def test_a_use_splits_the_group_into_those_that_saw_the_card_and_those_that_did_not():
    uses = {u.card_id: u for u in collect([GROUP], step=3).uses}
    assert uses["c1"].rewards_with == (1.0, 0.0) and uses["c1"].rewards_without == (0.0, 0.0)
    assert uses["c2"].rewards_with == (0.0, 0.0) and uses["c2"].rewards_without == (1.0, 0.0)
    assert uses["c1"].event_id == "use/3/p1/c1" and uses["c1"].similarity == 0.6 and uses["c1"].policy_version == 7
    assert uses["c2"].substantive  # rollout 1 answered on evidence


def test_a_decoy_earns_no_credit_and_is_not_held_against_the_bank():
    decoy = ShownCard("c9", 0.1, "[S1] z", decoy=True)
    group = Group(PROBLEM, (rollout(0, "gold", cards=[decoy]), rollout(1, "bad", cards=[decoy])), (1.0, 0.0))
    evidence = collect([group], step=1)
    assert evidence.uses == () and evidence.failures[0].shown_cards == ()


def test_one_failure_per_problem_the_longest_evidence():
    (failure,) = collect([GROUP], step=3).failures
    assert failure.answer == "bad" and failure.evidence == (SHORT, LONG) and failure.shown_cards == ()
    assert failure.failed_count == 3 and failure.pass_rate == 0.25 and failure.problem_evidence == (SHORT,)


@pytest.mark.parametrize(
    "bad",
    [
        rollout(0, "bad", passages=()),  # no evidence
        rollout(0, None, ending=Ending.MALFORMED),
        rollout(0, None, ending=Ending.TURN_LIMIT),
        rollout(0, None, ending=Ending.TRUNCATED),
    ],
)
def test_what_is_not_a_failure(bad):
    assert collect([Group(PROBLEM, (bad, rollout(1, "gold")), (0.0, 1.0))], step=1).failures == ()


def test_a_sibling_that_solved_the_problem_adds_where_the_answer_stands():
    group = Group(PROBLEM, (rollout(0, "bad"), rollout(1, "gold", passages=[SHORT, LONG])), (0.0, 1.0))
    assert collect([group], step=1).failures[0].problem_evidence == (SHORT, LONG)


def test_ties_go_to_the_first_sample():
    group = Group(PROBLEM, (rollout(0, "one"), rollout(1, "two")), (0.0, 0.0))
    assert collect([group], step=1).failures[0].answer == "one"


def test_a_problem_that_comes_back_from_the_pool_is_the_same_failure():
    first, later = (collect([GROUP], step=s).failures[0] for s in (3, 12))
    assert first.failure_id == later.failure_id == "f/p1" and (first.step, later.step) == (3, 12)


def test_evidence_comes_back_from_disk_as_it_was_written(tmp_path):
    path = tmp_path / "evidence.jsonl"
    steps = [collect([GROUP], step=s) for s in (1, 2)]
    for step in steps:
        append_step(path, step)
    assert read_segment(path, 4, 2).steps == tuple(steps)
    assert read_segment(tmp_path / "none.jsonl", 4, 2).steps == ()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError):
        read_segment(path, 4, 2)
