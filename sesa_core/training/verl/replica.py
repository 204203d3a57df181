"""The rollout replica that verl's server bookkeeping wants: it points at the training worker itself, where our generator lives.

Edge case: sleeping, waking and emptying caches have no meaning beside a generator that shares the worker's process.
"""

from typing import Any

from verl.workers.rollout.replica import RolloutReplica


class GeneratorReplica(RolloutReplica):
    """One data-parallel rank's generator."""

    async def launch_servers(self) -> None:
        self._server_handle = self.workers[0]
        self._server_address = f"{self.config.name}-{self.replica_rank}"
        self.servers = [self._server_handle]

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
