"""What we override, call or read of verl beyond its public surface is there and looks as it did; a failure names what moved."""

import inspect
from collections.abc import Callable

import pytest

import sesa_core.training.verl  # noqa: F401  (names our platform before verl is imported)

# isort: split
import verl
from verl.checkpoint_engine import CheckpointEngineManager
from verl.plugin.platform import PlatformBase, PlatformRegistry, get_platform
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch
from verl.single_controller.ray import ResourcePoolManager
from verl.single_controller.ray.base import RayResourcePool, _determine_fsdp_megatron_base_class
from verl.trainer.ppo.core_algos import agg_loss, compute_grpo_outcome_advantage, compute_policy_loss_vanilla, kl_penalty
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout, get_rollout_class
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested

from sesa_core.training.verl.engine import CpuEngine
from sesa_core.training.verl.platform import ROLLOUT_NAMES, CpuPlatform
from sesa_core.training.verl.replica import GeneratorReplica
from sesa_core.training.verl.trainer import PolicyTrainer, SharedPools
from sesa_core.training.verl.worker import GeneratorRollout, PolicyWorker

SIGNATURES = [
    # overridden
    (FSDPEngineWithLMHead, "_build_fsdp_module", "self module"),
    (FSDPEngineWithLMHead, "prepare_model_inputs", "self micro_batch"),
    (FSDPEngineWithLMHead, "prepare_model_outputs", "self output output_args micro_batch logits_processor_func"),
    (ActorRolloutRefWorker, "__init__", "self config role distillation_config kwargs"),
    (ActorRolloutRefWorker, "init_model", "self"),
    (ActorRolloutRefWorker, "update_actor", "self data"),
    (PPOTrainer, "__init__", "self config"),
    (PPOTrainer, "_init_dataloader", "self"),
    (PPOTrainer, "_init_resource_pool_mgr", "self"),
    (ResourcePoolManager, "create_resource_pool", "self"),
    (RolloutReplica, "launch_servers", "self"),
    (RolloutReplica, "sleep", "self"),
    (BaseRollout, "__init__", "self config model_config device_mesh args kwargs"),
    (BaseRollout, "resume", "self tags"),
    (BaseRollout, "release", "self"),
    (BaseRollout, "update_weights", "self weights wire_format kwargs"),
    # called
    (ActorRolloutRefWorker, "update_weights", "self global_steps mode"),
    (ActorRolloutRefWorker, "save_checkpoint", "self local_path hdfs_path global_step max_ckpt_to_keep"),
    (ActorRolloutRefWorker, "load_checkpoint", "self local_path hdfs_path del_local_after_load"),
    (TrainingWorker, "reset", "self"),
    (TrainingWorker, "infer_batch", "self data"),
    (TrainingWorker, "set_loss_fn", "self loss_fn"),
    (TrainingWorker, "train_mini_batch", "self data"),
    (FSDPEngine, "lr_scheduler_step", "self"),
    (FSDPEngine, "get_per_tensor_param", "self layered_summon base_sync_done kwargs"),
    (PPOTrainerSync, "init", "self"),
    (PPOTrainerSync, "on_init_end", "self"),
    (RayResourcePool, "get_placement_groups", "self strategy name device_name"),
    (CheckpointEngineManager, "update_weights", "self global_steps"),
    (RolloutReplicaRegistry, "register", "name loader"),
    (PlatformRegistry, "register", "platform"),
]

FUNCTIONS = [
    (compute_grpo_outcome_advantage, "token_level_rewards response_mask index epsilon norm_adv_by_std_in_grpo config"),
    (initialize_global_process_group_ray, "timeout_second backend"),
    (response_from_nested, "tensor response_mask"),
    (get_rollout_class, "rollout_name mode"),
    (ppo_loss, "config model_output data dp_group"),
    (agg_loss, "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor"),
    (kl_penalty, "logprob ref_logprob kl_penalty"),
    (no_padding_2_padding, "tensor data"),
]

# What is read or set on an object, by a piece of the source that makes or reads it.
SOURCES = [
    (FSDPEngine, "self.optimizer = optimizer"),
    (FSDPEngine, "self.engine_config = engine_config"),
    (FSDPEngine, "self.optimizer_config = optimizer_config"),
    (FSDPEngineWithLMHead, 'output_args["input_ids_rmpad_rolled"]'),
    (FSDPEngineWithLMHead, 'output_args["temperature"]'),
    (FSDPEngineWithLMHead, '"temperature_is_one": temperature_is_one'),
    (TrainingWorker, 'tu.pop(data, key="mini_batch_size"'),
    (TrainingWorker, 'final_metrics["grad_norm"]'),
    (ActorRolloutRefWorker, "self.actor = self.actor_worker_cls("),
    (ActorRolloutRefWorker, "self.ref = self.ref_worker_cls("),
    (ActorRolloutRefWorker, "await self.rollout.update_weights("),
    (RolloutReplica, "return self._server_handle"),
    (RolloutReplica, "return self._server_address"),
    (LLMServerManager, "self.server_handles ="),
    (LLMServerManager, "self.global_load_balancer ="),
    (PPOTrainer, "self.role_worker_mapping[role] = ray.remote(ActorRolloutRefWorker)"),
    (PPOTrainer, "self.resource_pool_manager = ResourcePoolManager(resource_pool_spec=resource_pool_spec, mapping=self.mapping)"),
    (PPOTrainer, "self.actor_rollout_wg = "),
    (PPOTrainer, "self.llm_server_manager"),
    (PPOTrainer, "self.checkpoint_manager"),
    (ppo_loss, 'data["global_batch_size"]'),
    (ppo_loss, 'data["batch_num_tokens"]'),
    (ppo_loss, 'data["ref_log_prob"]'),
    (ActorRolloutRefWorker, "self.loss_fn = partial(ppo_loss, config=actor_config)"),
    (compute_policy_loss_vanilla, '"actor/pg_clipfrac"'),
    (compute_policy_loss_vanilla, '"actor/ppo_kl"'),
]


def parameters(function: Callable) -> str:
    # a Ray cluster that was started before in this process adds a parameter of its own to the methods of its actors
    return " ".join(name for name in inspect.signature(inspect.unwrap(function)).parameters if name != "_ray_trace_ctx")


def test_it_is_the_version_that_all_this_was_read_from():
    assert verl.__version__ == "0.9.1"


@pytest.mark.parametrize(("owner", "name", "expected"), SIGNATURES, ids=[f"{o.__name__}.{n}" for o, n, _ in SIGNATURES])
def test_a_method_takes_what_it_took(owner, name, expected):
    assert hasattr(owner, name), f"{owner.__module__}.{owner.__name__}.{name} is gone"
    assert parameters(getattr(owner, name)) == expected


@pytest.mark.parametrize(("function", "expected"), FUNCTIONS, ids=[f.__name__ for f, _ in FUNCTIONS])
def test_a_function_takes_what_it_took(function, expected):
    assert parameters(function) == expected


@pytest.mark.parametrize(("owner", "text"), SOURCES, ids=[f"{o.__name__}: {t}" for o, t in SOURCES])
def test_what_we_read_is_still_set(owner, text):
    assert text in inspect.getsource(owner), f"{owner.__module__}.{owner.__name__} no longer has {text}"


OVERRIDES = [CpuEngine, GeneratorRollout, GeneratorReplica, PolicyWorker, PolicyTrainer, SharedPools, CpuPlatform]
OURS = {"_pick_hidden", "_nothing", "_begin_schedule", "begin", "restart", "generate_many", "learning_rate", "set_rate", "export_hf"}


@pytest.mark.parametrize("ours", OVERRIDES, ids=lambda c: c.__name__)
def test_every_method_of_ours_that_is_not_new_still_overrides_something(ours):
    written = {name for name, value in vars(ours).items() if inspect.isfunction(value)} - OURS
    assert {name for name in written if not any(hasattr(base, name) for base in ours.__bases__)} == set()


def test_the_platform_answers_everything_that_verl_asks():
    assert not CpuPlatform.__abstractmethods__
    assert isinstance(get_platform(), CpuPlatform)
    assert issubclass(CpuPlatform, PlatformBase)


def test_verl_finds_our_rollouts_and_replicas():
    for name in ROLLOUT_NAMES:
        assert (name, "async") in _ROLLOUT_REGISTRY
        assert get_rollout_class(name) is GeneratorRollout
        assert RolloutReplicaRegistry.get(name) is GeneratorReplica


def test_verl_builds_our_engine_on_a_cpu():
    assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is CpuEngine


def test_the_fused_worker_is_built_on_verls_worker_and_not_on_ours():
    assert _determine_fsdp_megatron_base_class([PolicyWorker.__mro__]) is Worker


def test_a_direct_rollout_method_is_bound_without_a_prefix():
    assert hasattr(Dispatch, "DIRECT_ROLLOUT_METHOD")
