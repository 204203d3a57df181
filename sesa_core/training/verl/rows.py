"""Training rows -> verl's mini-batches, and verl's metrics -> ours.

Invariant: every row is in exactly one mini-batch, and each mini-batch's loss is averaged over its live rows and tokens
only. Edge case: verl cuts a mini-batch into micro-batches of equal size, so a mini-batch is filled up with rows of two
tokens whose mask is 0: they cost next to nothing and appear in no denominator.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from sesa_core.config.models import GrpoSettings
from sesa_core.policy.base import TrainingRow
from sesa_core.training.verl.loss import TOKEN_KL

FILLER = TrainingRow(prompt_ids=(0,), response_ids=(0,), response_mask=(0,), old_log_probs=(0.0,), advantage=0.0, group_id="")


def mini_batches(rows: Sequence[TrainingRow], settings: GrpoSettings, temperature: float, rng: np.random.Generator) -> list[TensorDict]:
    """One TensorDict per optimizer step, of nearly equal size, at most `mini_batch_rows` live rows each.

    Several mini-batches are drawn with `rng`, row by row: drawn group by group they would share more tokens, but an optimizer step
    would see fewer questions. Inside one, groups are sorted by their length and their rows by their tokens, so that micro-batches
    hold rows of like length and like beginnings.
    """
    count = math.ceil(len(rows) / settings.mini_batch_rows)
    order = rng.permutation(len(rows)) if count > 1 else np.arange(len(rows))
    return [_mini_batch([rows[i] for i in part], settings, temperature) for part in np.array_split(order, count)]


def _mini_batch(rows: list[TrainingRow], settings: GrpoSettings, temperature: float) -> TensorDict:
    longest: dict[str, int] = {}
    for row in rows:
        longest[row.group_id] = max(longest.get(row.group_id, 0), len(row.prompt_ids) + len(row.response_ids))
    rows = sorted(rows, key=lambda row: (longest[row.group_id], row.group_id, row.prompt_ids + row.response_ids))
    micro = min(settings.micro_batch_rows, len(rows))
    # Fillers go among the shortest rows, at most one micro-batch of them.
    rows_and_fillers = [FILLER] * (-len(rows) % micro) + rows
    tensors = {
        "prompts": _jagged([row.prompt_ids for row in rows_and_fillers], torch.long),
        "responses": _jagged([row.response_ids for row in rows_and_fillers], torch.long),
        "input_ids": _jagged([row.prompt_ids + row.response_ids for row in rows_and_fillers], torch.long),
        "position_ids": _jagged([range(len(row.prompt_ids) + len(row.response_ids)) for row in rows_and_fillers], torch.long),
        "response_mask": _jagged([row.response_mask for row in rows_and_fillers], torch.long),
        "old_log_probs": _jagged([row.old_log_probs for row in rows_and_fillers], torch.float32),
        "advantages": _jagged([[row.advantage * m for m in row.response_mask] for row in rows_and_fillers], torch.float32),
    }
    tensors["loss_mask"] = tensors["response_mask"]
    plain = {
        "temperature": temperature,
        "calculate_entropy": settings.entropy_coef > 0,
        "compute_loss": True,
        "pad_mode": "no_padding",
        "mini_batch_size": len(rows_and_fillers),
        "micro_batch_size_per_gpu": micro,
        "global_batch_size": len(rows),
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
    }
    return tu.get_tensordict(tensors, non_tensor_dict=plain)


def _jagged(lists: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(values, dtype=dtype) for values in lists], layout=torch.jagged)


def update_metrics(reported: Sequence[dict[str, object]], rates: Sequence[float], rows: Sequence[TrainingRow]) -> dict[str, float]:
    """Means over the optimizer steps of one update.

    `kl` is to the initial policy, per token however the loss aggregates; 0 where no reference is kept. `entropy` is that of the
    policy that sampled, in nats per token, estimated by its own tokens' log-probs: exact entropies cost a pass over the vocabulary
    that nothing else needs.
    """
    names = {
        "loss": "loss",
        "grad_norm": "grad_norm",
        "kl": TOKEN_KL,
        "clip_fraction": "actor/pg_clipfrac",
        "update_kl": "actor/ppo_kl",  # from the policy that sampled, over this update's mini-batches
    }
    means = {ours: _mean([_mean(step.get(theirs, 0.0)) for step in reported]) for ours, theirs in names.items()}
    surprises = [-log_prob for row in rows for log_prob, mask in zip(row.old_log_probs, row.response_mask, strict=True) if mask]
    return means | {"entropy": _mean(surprises), "lr": rates[-1], "optimizer_steps": float(len(reported))}


def _mean(value: object) -> float:
    return float(np.mean(np.asarray(value, dtype=np.float64)))
