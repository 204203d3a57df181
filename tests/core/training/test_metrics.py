"""What a step's numbers say of games that ran out of context, counted by hand."""

from dataclasses import replace

from sesa_core.rollout.solver import SolverRound
from sesa_core.training.metrics import step_metrics
from sesa_core.types import Ending, Group, Role, StepEvidence
from tests.rollouts_support import CHAD, PROBLEM, TARGET, answer, first_step, rollout, search


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
    metrics = step_metrics(proposals, SolverRound((Group(PROBLEM, played, (0.0, 1.0, 1.0, 0.0)),), {}), StepEvidence(1), {}, {}, {})
    assert (metrics["solver/truncated_rate"], metrics["solver/finished_rate"], metrics["solver/passages_left_out"]) == (0.25, 0.75, 1.0)
    assert metrics["proposer/truncated_rate"] == 0.5, "a dropped proposal does not count"


def test_each_phase_has_its_share_of_the_step():
    metrics = step_metrics((), SolverRound((), {}), StepEvidence(1), {}, {}, {"propose": 1.0, "solve": 2.0, "update solver": 1.0})
    assert (metrics["seconds/step"], metrics["seconds/update_solver"]) == (4.0, 1.0)
    assert {k: v for k, v in metrics.items() if k.startswith("time_share/")} == {
        "time_share/propose": 0.25,
        "time_share/solve": 0.5,
        "time_share/update_solver": 0.25,
    }
