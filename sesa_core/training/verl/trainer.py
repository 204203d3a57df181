"""verl's synchronous trainer, used for what it builds: worker groups, rollout replicas and weight sync of one policy.

The step, the multi-turn play and the advantages are ours, above; verl's data loading, queue and `fit` are not run. Several
of these share one driver, one Ray cluster and one resource pool. Edge case: verl would build a pool per trainer, and the
second would wait for ever for resources that the first one holds.
"""

import ray
from omegaconf import DictConfig
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.utils import Role as VerlRole
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.device import get_device_name

from sesa_core.training.verl.settings import UNBOUNDED_STEPS
from sesa_core.training.verl.worker import PolicyWorker

ACTORS = (VerlRole.Actor, VerlRole.ActorRollout, VerlRole.ActorRolloutRef)


class SharedPools(ResourcePoolManager):
    """verl's pools, made once however many trainers ask."""

    def create_resource_pool(self) -> None:
        if self.resource_pool_dict:
            return
        super().create_resource_pool()
        for pool in self.resource_pool_dict.values():
            pool.get_placement_groups(device_name=get_device_name())


class PolicyTrainer(PPOTrainerSync):
    """One policy's worker group. `pools` is shared: the first trainer fills it, the others are handed it."""

    def __init__(self, config: DictConfig, pools: SharedPools | None) -> None:
        super().__init__(config)
        self.pools = pools

    def _init_dataloader(self) -> None:
        self.total_training_steps = UNBOUNDED_STEPS  # prompts come from the step, not from a data set

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in [r for r in self.role_worker_mapping if r in ACTORS]:
            self.role_worker_mapping[role] = ray.remote(PolicyWorker)
        built = self.resource_pool_manager
        self.pools = self.pools or SharedPools(resource_pool_spec=built.resource_pool_spec, mapping=built.mapping)
        self.resource_pool_manager = self.pools

    def begin(self) -> None:
        """Start the workers and hand the first weights to their generators."""
        self.init()
        ray.kill(self.llm_server_manager.global_load_balancer)  # a process that nobody asks: requests go straight to the workers
