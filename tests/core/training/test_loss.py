"""verl's loss under a run's settings, with numbers worked out by hand: clipping, KL, entropy, and how tokens become one number.

The batch: two rollouts, of three and of one trained token, and a filler of none. The policy that updates writes every token with
the log-prob of the one that sampled it plus what a test says, so that each ratio is exp(that).
"""

import math
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sesa_core.training.verl  # noqa: F401  (names our platform before verl is imported)

# isort: split
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import Metric
from verl.workers.utils.losses import ppo_loss

from sesa_core import rng
from sesa_core.config.models import GrpoSettings, RunConfig
from sesa_core.policy.base import TrainingRow
from sesa_core.training.verl.loss import TOKEN_KL, with_token_kl
from sesa_core.training.verl.rows import mini_batches
from sesa_core.training.verl.settings import verl_config
from sesa_core.types import Role

MAX_CONTEXT = 96


def row(advantage: float, mask: tuple[int, ...]) -> TrainingRow:
    return TrainingRow((1, 2), (3,) * len(mask), mask, tuple(-1.0 * m for m in mask), advantage, "g")


LONG, SHORT = row(1.0, (1, 1, 0, 1)), row(-2.0, (1,))


def loss_of(rows: list[TrainingRow], moved: float = 0.0, ref_moved: float | None = None, micro: int = 8, **grpo) -> tuple[float, dict]:
    """The loss of one mini-batch, and verl's metrics. `moved`, `ref_moved`: log-probs now and under the reference, minus those then."""
    config = RunConfig(grpo={"kl_coef": 0.0, "micro_batch_rows": micro} | grpo, rollout={"max_context": MAX_CONTEXT})
    actor = omega_conf_to_dataclass(verl_config(config, Role.SOLVER, Path("tiny")).actor_rollout_ref.actor)
    (batch,) = mini_batches(rows, config.grpo, 1.0, rng.stream(0, "t"))
    lengths = batch["input_ids"].offsets().diff().tolist()
    tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=sum(sum(r.response_mask) for r in rows))
    then = batch["old_log_probs"]
    if ref_moved is not None:
        batch["ref_log_prob"] = nested([t + ref_moved for t in then.unbind()])
    # verl's own shift: the log-prob of a token stands at the place before it
    flat = [torch.cat([torch.zeros(n - len(t) - 1), t + moved, torch.zeros(1)]) for n, t in zip(lengths, then.unbind(), strict=True)]
    entropy = nested([torch.full((n,), 0.5) for n in lengths]) if config.grpo.entropy_coef else None
    loss, metrics = with_token_kl(partial(ppo_loss, actor), actor.kl_loss_type, {"log_probs": nested(flat), "entropy": entropy}, batch)
    return float(loss), {name: float(m.aggregate()) if isinstance(m, Metric) else m for name, m in metrics.items()}


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token-mean", -(3 * 1 - 2) / 4),  # all four tokens alike
        ("seq-mean-token-sum", -(3 * 1 - 2) / 2),
        ("seq-mean-token-mean", -(1 - 2) / 2),  # a token of the long rollout counts a third of the short one's
        ("seq-mean-token-sum-norm", -(3 * 1 - 2) / 2 / MAX_CONTEXT),
    ],
)
@pytest.mark.parametrize("micro", [1, 2])
def test_how_token_losses_become_one_number(aggregation, expected, micro):
    """At ratio 1 a token's loss is minus its advantage. Two rows in micro-batches of one or two need no filler."""
    loss, _ = loss_of([LONG, SHORT], micro=micro, loss_aggregation=aggregation)
    assert loss == pytest.approx(expected)


def test_the_constant_of_dr_grpo_can_be_named_and_is_never_the_longest_rollout_of_a_batch():
    """verl would divide by the longest response of each micro-batch: 4 here, and another number in the next one."""
    assert loss_of([LONG, SHORT], loss_aggregation="seq-mean-token-sum-norm", loss_scale=10)[0] == pytest.approx(-0.5 / 10)
    assert loss_of([LONG, SHORT], loss_aggregation="seq-mean-token-sum-norm")[0] == pytest.approx(-0.5 / MAX_CONTEXT)
    longer = row(1.0, (1, 1, 0, 1, 0, 0, 0, 0))
    assert loss_of([longer, SHORT], loss_aggregation="seq-mean-token-sum-norm")[0] == pytest.approx(-0.5 / MAX_CONTEXT)


@pytest.mark.parametrize("aggregation", get_args(GrpoSettings.model_fields["loss_aggregation"].annotation))
def test_a_dead_row_is_in_no_denominator(aggregation):
    """Three rows in micro-batches of two: one filler, which changes nothing."""
    rows = [LONG, SHORT, SHORT]
    filled, _ = loss_of(rows, micro=2, loss_aggregation=aggregation)
    assert filled == pytest.approx(loss_of(rows, micro=3, loss_aggregation=aggregation)[0])


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected", "clipped"),
    [
        (1.0, 1.2, -1.2, 0.0),
        (1.0, 1.4, -1.285, 1.0),  # no more is to be gained above 1 + clip_high
        (1.0, 0.5, -0.5, 0.0),  # a good token that became rarer is always pulled back
        (-1.0, 0.9, 0.9, 0.0),
        (-1.0, 0.5, 0.8, 1.0),  # nor below 1 - clip_low
        (-1.0, 2.0, 2.0, 0.0),
        (-1.0, 5.0, 3.0, 0.0),  # verl's dual clip: a bad token that became far more likely counts thrice at most
    ],
)
def test_where_the_ratio_is_clipped(advantage, ratio, expected, clipped):
    loss, metrics = loss_of([row(advantage, (1, 1))], moved=math.log(ratio), clip_low=0.2, clip_high=0.285)
    assert loss == pytest.approx(expected)
    assert metrics["actor/pg_clipfrac"] == clipped
    assert metrics["actor/ppo_kl"] == pytest.approx(-math.log(ratio))


@pytest.mark.parametrize(
    ("apart", "kl"),
    [
        (0.0, 0.0),
        (math.log(2), 2 - math.log(2) - 1),  # exp(d) - d - 1 = 0.3069
        (-math.log(2), 0.5 + math.log(2) - 1),  # 0.1931: not the same the other way round
        (50.0, 10.0),  # exp(20) where exp(50) stood, and of that 10 at most
        (-50.0, 10.0),  # 20 - 1, and of that 10 at most
    ],
)
def test_the_kl_term_is_low_variance_and_bounded(apart, kl):
    """`apart` is the reference's log-prob minus the policy's."""
    loss, metrics = loss_of([row(1.0, (1, 1, 0))], ref_moved=apart, kl_coef=0.01)
    assert metrics["kl_loss"] == pytest.approx(kl, abs=1e-6)
    assert loss == pytest.approx(-1 + 0.01 * kl)


@pytest.mark.parametrize("aggregation", get_args(GrpoSettings.model_fields["loss_aggregation"].annotation))
def test_the_kl_is_told_per_token_however_the_loss_aggregates(aggregation):
    """Each of the five tokens is exp(log 2) - log 2 - 1 = 0.3069 away. Three rows in micro-batches of two: one filler, which adds none."""
    _, metrics = loss_of([LONG, SHORT, SHORT], ref_moved=math.log(2), kl_coef=0.01, micro=2, loss_aggregation=aggregation)
    assert metrics[TOKEN_KL] == pytest.approx(1 - math.log(2))


def test_without_a_reference_there_is_no_kl():
    assert TOKEN_KL not in loss_of([LONG, SHORT])[1]


@settings(max_examples=20, deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.sampled_from([1.0, -1.0]))
def test_no_distance_makes_the_loss_infinite(moved, apart, advantage):
    loss, _ = loss_of([row(advantage, (1, 1))], moved=moved, ref_moved=apart, kl_coef=0.01)
    assert math.isfinite(loss)


def test_the_entropy_bonus_is_subtracted():
    loss, metrics = loss_of([LONG, SHORT], entropy_coef=0.1)
    assert metrics["actor/entropy_loss"] == pytest.approx(0.5)
    assert loss == pytest.approx(-0.25 - 0.1 * 0.5)
