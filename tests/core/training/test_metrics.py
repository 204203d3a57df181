"""A step's numbers of games that ran out of context, of dropped groups and of the cards that were shown, counted by hand."""

from dataclasses import replace

from sesa_core.rollout.solver import Attempt, SolverRound
from sesa_core.training.metrics import step_metrics
from sesa_core.types import Ending, Group, Role, StepEvidence
from tests.rollouts_support import CARD, CHAD, DECOY, PROBLEM, TARGET, answer, first_step, rollout, search


def test_truncated_games_and_passages_without_room_are_counted():
    """Two of four games show less than was found (2 + 1 and 1 passages), one of them ends for it; one of two proposals that count does."""
    short = replace(search("Chad", CHAD), left_out=2), replace(search("gold", CHAD), left_out=1)
    played = (
        rollout(Role.SOLVER, 0, *short, search("salt"), ending=Ending.TRUNCATED),
        rollout(Role.SOLVER, 1, short[1], answer("gold")),
        rollout(Role.SOLVER, 2, search("Chad", CHAD), answer("gold")),
        rollout(Role.SOLVER, 3, answer("salt")),
    )
    asked = rollout(Role.PROPOSER, 0, search(TARGET.answer), ending=Ending.TRUNCATED)
    first, *others = first_step().proposals
    proposals = (replace(first, trajectory=asked), *others)
    solved = SolverRound((Group(PROBLEM, played, (0.0, 1.0, 1.0, 0.0)),), {})
    metrics = step_metrics(proposals, (Attempt(PROBLEM, played),), solved, StepEvidence(1), {}, {})
    assert (metrics["solver/truncated_rate"], metrics["solver/finished_rate"], metrics["solver/passages_left_out"]) == (0.25, 0.75, 1.0)
    assert metrics["proposer/truncated_rate"] == 0.5, "a dropped proposal does not count"


def test_each_phase_has_its_share_of_the_step():
    metrics = step_metrics((), (), SolverRound((), {}), StepEvidence(1), {}, {"propose": 1.0, "solve": 2.0, "update solver": 1.0})
    assert (metrics["seconds/step"], metrics["seconds/update_solver"]) == (4.0, 1.0)
    assert {k: v for k, v in metrics.items() if k.startswith("time_share/")} == {
        "time_share/propose": 0.25,
        "time_share/solve": 0.5,
        "time_share/update_solver": 0.25,
    }


def test_what_dropped_groups_sampled_counts_like_the_time_it_took():
    """Tokens: of the proposals 3, 2 and 1, of the group that counts 2 + 1, of the dropped one 2 + 1: 12 in three seconds."""
    played = rollout(Role.SOLVER, 0, search("Chad", CHAD), answer("gold")), rollout(Role.SOLVER, 1, answer("salt"))
    lost = played[0], rollout(Role.SOLVER, 1, search("Chad"), ending=Ending.DROPPED)
    attempts = Attempt(PROBLEM, played), Attempt(replace(PROBLEM, problem_id="p-2"), lost)
    solved = SolverRound((Group(PROBLEM, played, (1.0, 0.0)),), {"p-2": "search: down"})
    metrics = step_metrics(
        first_step().proposals, attempts, solved, StepEvidence(1), {}, {"propose": 1.0, "solve": 2.0, "update solver": 9.0}
    )
    assert metrics["tokens_per_second"] == 12 / 3


def test_a_questions_cards_are_those_that_its_rollouts_were_shown():
    """Two of the first question, in different rollouts; of the second only a decoy, of the third none: 2/3 a question, one in three."""
    other = replace(CARD, card_id="c-river")
    shown = (((CARD,), (CARD, other), (DECOY,)), ((DECOY,), ()), ((), ()))
    attempts = [Attempt(PROBLEM, tuple(rollout(Role.SOLVER, i, answer("gold"), cards=c) for i, c in enumerate(group))) for group in shown]
    metrics = step_metrics((), attempts, SolverRound((), {}), StepEvidence(1), {}, {})
    assert (metrics["bank/cards_per_question"], metrics["bank/questions_with_cards"]) == (2 / 3, 1 / 3)
    assert "bank/cards_per_question" not in step_metrics((), (), SolverRound((), {}), StepEvidence(1), {}, {})
