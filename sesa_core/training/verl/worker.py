"""What runs one policy, in this process or in a Ray worker: verl's actor, its reference if there is one, and our generator.

Both hosts use this one class, so they cannot differ in what an update or a rollout does. Invariant: the generator's weights
are those of the last `update_weights`. Edge case: verl picks the base of its fused Ray class by the bare name "Worker", so
no class here may have that name.
"""

import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.utils.padding import response_from_nested

import sesa_core.training.verl.engine  # noqa: F401  (registers the CPU engine in whatever process runs a worker)
from sesa_core.policy.any_model import generator_for
from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.policy.decoder import overwrite
from sesa_core.policy.loading import load_policy, load_tokenizer
from sesa_core.policy.stopping import token_pieces
from sesa_core.training.verl.loss import with_token_kl


def group_backend() -> str | None:
    """The process group's backend; on a CPU verl's own choice would name gloo twice, "cpu:gloo,cpu:gloo"."""
    return "cpu:gloo" if get_device_name() == "cpu" else None


class GeneratorRollout(BaseRollout):
    """verl's rollout interface over our generator; lives beside the actor and takes its weights after each update."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        room = self.config.engine_kwargs["sesa"]
        folder = Path(self.model_config.local_path)
        model = load_policy(folder, room["dtype"]).to(get_device_name())
        self.generator = generator_for(model, room["slots"], room["max_len"], token_pieces(load_tokenizer(folder)))

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], wire_format: str = "named_tensors", **kwargs: Any) -> None:
        self.generator.load_weights(weights)


def _actor_over(frozen: dict[str, torch.nn.Parameter] | None, config: TrainingWorkerConfig) -> TrainingWorker:
    actor = TrainingWorker(config)
    actor.engine.frozen = frozen
    return actor


class PolicyWorker(ActorRolloutRefWorker):
    """One policy's actor, reference and generator. What `frozen` is, `CpuEngine` says; without it the actor's weights are its own."""

    def __init__(self, config: Any, role: str, *args: Any, frozen: dict[str, torch.nn.Parameter] | None = None, **kwargs: Any) -> None:
        super().__init__(config, role, *args, **kwargs)
        self.actor_worker_cls = partial(_actor_over, frozen)
        torch.set_num_threads(config.rollout.engine_kwargs.sesa.threads)
        initialize_global_process_group_ray(backend=group_backend())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        super().init_model()
        self.actor.set_loss_fn(partial(with_token_kl, self.loss_fn, self.config.actor.kl_loss_type))
        self._begin_schedule()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def restart(self) -> None:
        """Back to the weights, optimizer and schedule that the worker began with."""
        self.actor.reset()
        self._begin_schedule()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict:
        """One optimizer step over one mini-batch, with the reference's log-probs added where the loss asks for them."""
        if self.config.actor.use_kl_loss:
            asked = data.copy()
            adapters = self.ref is None  # then the reference is the actor with its adapters switched off
            tu.assign_non_tensor(asked, compute_loss=False, calculate_entropy=False, no_lora_adapter=adapters)
            log_probs = (self.actor if adapters else self.ref).infer_batch(asked)["log_probs"]
            data["ref_log_prob"] = response_from_nested(log_probs, data["response_mask"])
        return super().update_actor(data)

    @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
    def generate_many(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return self.rollout.generator.generate(requests)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def learning_rate(self) -> float:
        """What the next optimizer step will use."""
        return self.actor.engine.optimizer.param_groups[0]["lr"]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_rate(self, rate: float) -> None:
        """What the schedule multiplies from now on. verl can only schedule by a known number of optimizer steps, and how many
        mini-batches an update has depends on how many groups are live."""
        schedule = self.actor.engine.lr_scheduler
        for i, group in enumerate(self.actor.engine.optimizer.param_groups):
            schedule.base_lrs[i] = rate
            group["lr"] = rate * schedule.lr_lambdas[i](schedule.last_epoch)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_hf(self, folder: str) -> None:
        """The actor's weights, config and tokenizer as a Hugging Face folder."""
        weights, _ = self.actor.engine.get_per_tensor_param()
        if self.rank != 0:
            deque(weights, maxlen=0)  # every rank has a part in gathering each
            return
        source = Path(self.rollout.model_config.local_path)
        model = load_policy(source)
        overwrite(model.state_dict(), weights, [name for name, _ in model.named_parameters()])  # a tied head is named once
        model.save_pretrained(folder)
        load_tokenizer(source).save_pretrained(folder)

    def _begin_schedule(self) -> None:
        # verl's warm-up starts at a rate of 0, which would waste the first step: begin at 1/warm-up instead.
        if self.actor.engine.optimizer_config.lr_warmup_steps > 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch warns of a schedule that moves before its optimizer: meant here
                self.actor.engine.lr_scheduler_step()
