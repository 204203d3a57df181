"""A run's settings in verl's words: one complete verl config per role, the same for both hosts."""

import copy
import functools
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from verl.utils.device import get_device_name

from sesa_core.config.models import RunConfig
from sesa_core.types import Role

UNBOUNDED_STEPS = 1_000_000  # the schedule is constant after its warm-up, so its horizon has no effect


def sampling_temperature(config: RunConfig, role: Role) -> float:
    """The temperature whose distribution the update learns from; greedy rollouts report log-probs at 1."""
    sampling = config.rollout.solver if role is Role.SOLVER else config.rollout.proposer
    return sampling.temperature or 1.0


def worker_parts(config: RunConfig) -> str:
    """What a policy's worker holds, in verl's words. With adapters the reference is the actor without them, not a model of its own."""
    return "actor_rollout_ref" if config.grpo.kl_coef > 0 and not config.policy.lora.rank else "actor_rollout"


def verl_config(config: RunConfig, role: Role, policy_path: Path) -> DictConfig:
    """verl's `ppo_trainer` config for `role`, resolved. A key that verl does not know is refused by OmegaConf."""
    tree = copy.deepcopy(_defaults())
    for key, value in _overrides(config, role, policy_path).items():
        OmegaConf.update(tree, key.removeprefix("+"), value, force_add=key.startswith("+"))
    OmegaConf.resolve(tree)
    return tree


@functools.cache
def _defaults() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


def _overrides(config: RunConfig, role: Role, policy_path: Path) -> dict[str, object]:
    rows = max(config.grpo.mini_batch_rows, config.grpo.micro_batch_rows)
    top = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": rows,
        "reward.num_workers": 0,
        "trainer.device": get_device_name(),
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        "trainer.logger": ["console"],
        "trainer.resume_mode": "disable",  # checkpoints are named by boundaries, never looked for
        "trainer.total_training_steps": UNBOUNDED_STEPS,
    }
    parts = {
        "model": _model(config, policy_path),
        "actor": _actor(config, rows),
        "ref": _reference(config),
        "rollout": _rollout(config, role),
    }
    for part, values in parts.items():
        for key, value in values.items():
            plus = "+" if key.startswith("+") else ""  # a key that verl's config does not have yet
            top[f"{plus}actor_rollout_ref.{part}.{key.removeprefix('+')}"] = value
    return top


def _model(config: RunConfig, policy_path: Path) -> dict[str, object]:
    lora = config.policy.lora
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    adapters = {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "target_modules": targets, "lora.merge": True} if lora.rank else {}
    return {
        "path": str(policy_path),
        "use_remove_padding": False,
        "enable_gradient_checkpointing": config.engine.recompute,
        "+override_config.attn_implementation": "sdpa",
        **adapters,
    }


def _precision(config: RunConfig) -> dict[str, object]:
    # The optimizer's own weights stay in fp32 whatever the policy's are: at a rate of 1e-6 a bf16 weight would rarely move.
    mixed = {"param_dtype": config.policy.dtype, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    own = {"fsdp_config.model_dtype": "fp32", "fsdp_config.use_torch_compile": False, "fsdp_config.seed": config.seed}
    return own | {"+fsdp_config.mixed_precision": mixed}


def _actor(config: RunConfig, rows: int) -> dict[str, object]:
    return {
        "strategy": "fsdp2",
        "ppo_mini_batch_size": rows,
        "ppo_micro_batch_size_per_gpu": config.grpo.micro_batch_rows,
        "clip_ratio": config.grpo.clip_low,
        "clip_ratio_low": config.grpo.clip_low,
        "clip_ratio_high": config.grpo.clip_high,
        "use_kl_loss": config.grpo.kl_coef > 0,
        "kl_loss_coef": config.grpo.kl_coef,
        "kl_loss_type": "low_var_kl",
        "entropy_coeff": config.grpo.entropy_coef,
        "loss_agg_mode": config.grpo.loss_aggregation,
        **_loss_scale(config),
        "grad_clip": config.optim.max_grad_norm,
        "+checkpoint.save_lora_only": config.policy.lora.rank > 0,  # the frozen model is where it was
        "optim.lr": config.optim.lr,
        "optim.lr_warmup_steps": config.optim.warmup_steps,
        "optim.weight_decay": config.optim.weight_decay,
        "optim.total_training_steps": UNBOUNDED_STEPS,
        **_precision(config),
    }


def _loss_scale(config: RunConfig) -> dict[str, object]:
    """The constant of `seq-mean-token-sum-norm`; without one verl divides by the longest response of each micro-batch."""
    if config.grpo.loss_aggregation != "seq-mean-token-sum-norm":
        return {}
    return {"loss_scale_factor": config.grpo.loss_scale or config.rollout.max_context}


def _reference(config: RunConfig) -> dict[str, object]:
    return {
        "strategy": "fsdp2",
        "log_prob_micro_batch_size_per_gpu": config.grpo.micro_batch_rows,
        **_precision(config),
    }


def _rollout(config: RunConfig, role: Role) -> dict[str, object]:
    room = {"slots": config.engine.slots, "max_len": config.rollout.max_context}
    room |= {"threads": config.engine.threads, "dtype": config.policy.dtype}
    return {
        "name": f"sesa_{role}",
        "n": 1,
        "temperature": sampling_temperature(config, role),
        "tensor_model_parallel_size": 1,
        "free_cache_engine": False,
        "log_prob_micro_batch_size_per_gpu": config.grpo.micro_batch_rows,
        "+engine_kwargs.sesa": room,
    }
