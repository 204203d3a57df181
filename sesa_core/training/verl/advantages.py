"""GRPO's advantage through verl's own `core_algos`."""

from collections.abc import Sequence

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage


def group_advantages(rewards: Sequence[float], names: Sequence[str], normalise_by_std: bool) -> list[float]:
    """One advantage per reward; rewards of equal name belong to one group of two or more."""
    scores = torch.tensor(rewards, dtype=torch.float32)[:, None]  # (N, 1): the outcome stands on one token
    mask = torch.ones_like(scores)
    index = np.array(names, dtype=object)
    advantages, _ = compute_grpo_outcome_advantage(scores, mask, index=index, norm_adv_by_std_in_grpo=normalise_by_std)
    return advantages[:, 0].tolist()
