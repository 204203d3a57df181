"""Both policies as verl worker groups on one Ray cluster. The host for everything larger than one process, on a CPU too.

Invariant: an engine here does what the in-process one does, for the worker class is the same; only the calls travel.
Edge case: a worker that dies raises EngineError at the next call; `release` and a new start bring the policies back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from sesa_core.config.models import RunConfig
from sesa_core.errors import EngineError, SesaError
from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.training.host import Host
from sesa_core.training.verl.base import VerlEngine
from sesa_core.training.verl.cluster import LocalCluster
from sesa_core.training.verl.settings import verl_config
from sesa_core.training.verl.trainer import PolicyTrainer, SharedPools
from sesa_core.types import Role


class RayEngine(VerlEngine):
    """The policy of `role` behind a started trainer."""

    def __init__(self, config: RunConfig, role: Role, trainer: PolicyTrainer) -> None:
        super().__init__(config, role)
        self._trainer, self._group = trainer, trainer.actor_rollout_wg

    def sync(self) -> None:
        with self._explained("taking over weights"):
            self._trainer.checkpoint_manager.update_weights(self.policy_version)

    def save_hf(self, path: Path) -> None:
        with self._explained("exporting"):
            self._group.export_hf(str(path.absolute()))

    def _generate(self, requests: list[GenerationRequest]) -> list[Completion]:
        servers = self._trainer.llm_server_manager.server_handles
        share = -(-len(requests) // len(servers))
        parts = [requests[i * share : (i + 1) * share] for i in range(len(servers))]
        with self._explained("generating"):
            answers = ray.get([server.generate_many.remote(part) for server, part in zip(servers, parts, strict=True)])
        return [completion for answer in answers for completion in answer]

    def _optimize(self, batch: TensorDict) -> dict[str, Any]:
        with self._explained("updating"):
            return tu.get(self._group.update_actor(batch), "metrics")

    def _learning_rate(self) -> float:
        with self._explained("updating"):
            return self._group.learning_rate()[0]

    def _set_rate(self, rate: float) -> None:
        with self._explained("updating"):
            self._group.set_rate(rate)

    def _write(self, folder: Path) -> None:
        with self._explained("saving"):
            self._group.save_checkpoint(str(folder.absolute()), global_step=self.policy_version)

    def _read(self, folder: Path) -> None:
        with self._explained("loading"):
            self._group.load_checkpoint(str(folder.absolute()))

    def _reset(self) -> None:
        with self._explained("restarting"):
            self._group.restart()

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RayError as error:
            cause = getattr(error, "cause", None)  # what the worker itself raised, without the trace that Ray wraps it in
            reason = cause if isinstance(cause, SesaError) else error
            raise EngineError(f"the {self.role}'s worker failed while {doing}: {reason}") from error


class RayHost(Host):
    """Starts the cluster when the first engine is asked for, in whatever thread asks: let that be the main thread."""

    def __init__(self, config: RunConfig, policy_path: Path) -> None:
        self._config, self._policy_path = config, policy_path
        self._cluster: LocalCluster | None = None
        self._pools: SharedPools | None = None
        self._engines: dict[Role, RayEngine] = {}

    def engine(self, role: Role) -> RayEngine:
        self._cluster = self._cluster or LocalCluster()
        if role not in self._engines:
            trainer = PolicyTrainer(verl_config(self._config, role, self._policy_path), self._pools)
            trainer.begin()
            self._pools = trainer.pools
            self._engines[role] = RayEngine(self._config, role, trainer)
        return self._engines[role]

    def release(self) -> None:
        self._engines.clear()
        self._pools = None
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None
