"""Both policies in this very process: verl's worker called directly, no Ray. The quickstart's host and the tests'.

With adapters the host owns one set of frozen weights, which the actors of both roles compute with and nobody writes to; each
generator holds a whole policy of its own. Invariant: the process group is one gloo rank without a port, so nothing listens and
runs side by side cannot collide. Edge case: verl's weight sync is a coroutine though nothing in it waits here; it is run to its
end without an event loop, so that a caller inside one is no obstacle.
"""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from sesa_core.config.environment import be_only_rank
from sesa_core.config.models import RunConfig
from sesa_core.errors import EngineError
from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.training.host import Host
from sesa_core.training.verl.base import VerlEngine
from sesa_core.training.verl.settings import verl_config, worker_parts
from sesa_core.training.verl.worker import PolicyWorker, group_backend
from sesa_core.types import Role


class InProcessEngine(VerlEngine):
    """The policy of `role`, begun from the Hugging Face folder `policy_path`, over the `frozen` weights that another left there."""

    def __init__(self, config: RunConfig, role: Role, policy_path: Path, frozen: dict[str, torch.nn.Parameter] | None = None) -> None:
        super().__init__(config, role)
        join_lone_group()
        settings = verl_config(config, role, policy_path).actor_rollout_ref
        self._worker = PolicyWorker(settings, worker_parts(config), frozen=frozen)
        self._worker.init_model()

    def sync(self) -> None:
        _run(self._worker.update_weights(global_steps=self.policy_version, mode="naive"))

    def save_hf(self, path: Path) -> None:
        self._worker.export_hf(str(path))

    def _generate(self, requests: list[GenerationRequest]) -> list[Completion]:
        return self._worker.generate_many(requests)

    def _optimize(self, batch: TensorDict) -> dict[str, Any]:
        return tu.get(self._worker.update_actor(batch), "metrics")

    def _learning_rate(self) -> float:
        return self._worker.learning_rate()

    def _set_rate(self, rate: float) -> None:
        self._worker.set_rate(rate)

    def _write(self, folder: Path) -> None:
        self._worker.save_checkpoint(str(folder), global_step=self.policy_version)

    def _read(self, folder: Path) -> None:
        self._worker.load_checkpoint(str(folder))

    def _reset(self) -> None:
        self._worker.restart()


class InProcessHost(Host):
    """Builds each engine when it is first asked for."""

    def __init__(self, config: RunConfig, policy_path: Path) -> None:
        self._config, self._policy_path = config, policy_path
        self._engines: dict[Role, InProcessEngine] = {}
        self._frozen: dict[str, torch.nn.Parameter] | None = {} if config.policy.lora.rank else None

    def engine(self, role: Role) -> InProcessEngine:
        if role not in self._engines:
            self._engines[role] = InProcessEngine(self._config, role, self._policy_path, self._frozen)
        return self._engines[role]

    def release(self) -> None:
        self._engines.clear()
        if self._frozen is not None:
            self._frozen.clear()


def join_lone_group() -> None:
    """Make this process the only rank of a process group, if it is in none."""
    be_only_rank()
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(group_backend(), store=store, rank=0, world_size=1)


def _run(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise EngineError("verl's weight sync waits for something; it did not when this was written")
