"""verl's loss, and beside it the one number that verl's own metrics do not tell: the KL per token.

verl reports the KL term as the loss has it, in the loss's aggregation: under a sum over tokens it grows with their number, under a
constant divisor it is near 0. Invariant: the loss is verl's, untouched.
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

TOKEN_KL = "actor/token_kl"


def with_token_kl(
    loss_fn: Callable[..., tuple[torch.Tensor, dict]], estimator: str, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict]:
    """`loss_fn` (verl's `ppo_loss` with its config) on one micro-batch; with reference log-probs its metrics also hold `TOKEN_KL`, the
    `estimator`'s mean over all trained tokens of the mini-batch. A micro-batch has its share of it, so the metric is summed."""
    loss, metrics = loss_fn(model_output=model_output, data=data, dp_group=dp_group)
    if "ref_log_prob" in data:
        log_probs = no_padding_2_padding(model_output["log_probs"].detach(), data)  # (B, R), as verl's loss has them
        padded = data.select("response_mask", "ref_log_prob").to_padded_tensor()
        kl = kl_penalty(log_probs, padded["ref_log_prob"], estimator)
        share = agg_loss(kl, padded["response_mask"].bool(), "token-mean", data["dp_size"], data["batch_num_tokens"])
        metrics[TOKEN_KL] = Metric(AggregationType.SUM, share)
    return loss, metrics
