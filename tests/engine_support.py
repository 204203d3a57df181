"""Engines under test: settings for a small policy, requests, rows that its own rollouts filled, and its weights."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from sesa_core.config.models import RunConfig
from sesa_core.policy.base import GenerationRequest, Sampling, TrainingRow
from tests.policies import VOCABULARY

ROOT = Path(__file__).parents[1]


def settings(
    policy_path: Path, host: str = "in_process", optim: dict | None = None, dtype: str = "fp32", recompute: bool = False, **grpo
) -> RunConfig:
    grpo = {"kl_coef": 0.0, "mini_batch_rows": 64, "micro_batch_rows": 4} | grpo
    return RunConfig(
        policy={"path": str(policy_path), "dtype": dtype},
        engine={"host": host, "slots": 16, "recompute": recompute},
        rollout={"max_context": 96},
        optim={"lr": 1e-2} | (optim or {}),
        grpo=grpo,
    )


def requests(count: int = 8, seed: int = 0, room: int = 12) -> list[GenerationRequest]:
    rng = np.random.default_rng(seed)
    texts = [tuple(rng.integers(1, VOCABULARY, int(rng.integers(4, 20))).tolist()) for _ in range(count)]
    return [GenerationRequest(text, seed * 1000 + i, Sampling(room)) for i, text in enumerate(texts)]


def sampled_rows(engine, count: int = 10, seed: int = 0) -> list[TrainingRow]:
    """Rows with a tool result in the middle, of uneven lengths, with advantages of both signs."""
    rng = np.random.default_rng(seed)
    rows = []
    batch = requests(count, seed)
    for i, (request, completion) in enumerate(zip(batch, engine.rollout(batch), strict=True)):
        tokens, log_probs = completion.token_ids[: 3 + i], completion.log_probs[: 3 + i]
        told = tuple(rng.integers(1, VOCABULARY, i % 4).tolist())
        rows.append(
            TrainingRow(
                prompt_ids=request.prompt_ids + tokens[:1],
                response_ids=tokens[1:] + told,
                response_mask=(1,) * (len(tokens) - 1) + (0,) * len(told),
                old_log_probs=log_probs[1:] + (0.0,) * len(told),
                advantage=float(rng.normal()),
                group_id=str(i // 2),
            )
        )
    return rows


def weights(engine, folder: Path) -> dict[str, torch.Tensor]:
    engine.save_hf(folder)
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def assert_same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    assert a.keys() == b.keys()
    worst = {name: float((a[name] - b[name]).abs().max()) for name in a}
    assert max(worst.values()) <= tolerance, max(worst, key=worst.get)
