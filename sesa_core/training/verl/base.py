"""What both hosts' engines have in common: versions, checkpoints and the order of an update.

A subclass says how one call reaches the worker (a plain call, or Ray). Invariant: `standing` names a checkpoint only while
the engine is exactly in its state. Edge case: an update that fails half-way leaves the engine between checkpoints.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensordict import TensorDict

from sesa_core import rng
from sesa_core.config.models import RunConfig
from sesa_core.errors import EngineError
from sesa_core.policy.base import Completion, GenerationRequest, TrainingRow
from sesa_core.training.checkpoint import publish, read_state, verify
from sesa_core.training.host import WARM_START
from sesa_core.training.verl.rows import mini_batches, update_metrics
from sesa_core.training.verl.settings import sampling_temperature
from sesa_core.types import Role


class VerlEngine(ABC):
    """One policy behind the Engine protocol."""

    def __init__(self, config: RunConfig, role: Role) -> None:
        self.config, self.role = config, role
        self._version = 0
        self._standing: str | None = WARM_START

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def standing(self) -> str | None:
        return self._standing

    def rollout(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return self._generate(list(requests)) if requests else []

    def update(self, rows: Sequence[TrainingRow]) -> dict[str, float]:
        """One GRPO update: one optimizer step per mini-batch. Raises EngineError for no rows: nothing must be trained on nothing."""
        if not rows:
            raise EngineError("an update needs at least one live row")
        self._standing = None
        order = rng.stream(self.config.seed, "mini-batches", self.role, self._version)
        batches = mini_batches(rows, self.config.grpo, sampling_temperature(self.config, self.role), order)
        self._set_rate(self._scheduled_rate())
        rates, reported = [], []
        for batch in batches:
            rates.append(self._learning_rate())
            reported.append(self._optimize(batch))
        self._version += 1
        return update_metrics(reported, rates, rows)

    def _scheduled_rate(self) -> float:
        """The rate of the coming update, warm-up aside: a function of how many there were, so that a resumed run goes on with it."""
        selfplay, optim = self.config.selfplay, self.config.optim
        last = selfplay.segments * selfplay.steps_per_segment - 1
        gone = min(1.0, self._version / last) if last > 0 else 0.0
        return optim.lr * (1 - (1 - optim.final_share) * gone)

    def save(self, path: Path) -> None:
        self._standing = publish(path, self.role, self._version, self._write).digest

    def load(self, path: Path) -> None:
        state = read_state(path, self.role)
        verify(path, state)
        self._standing = None
        self._read(path)
        self.sync()
        self._version, self._standing = state.policy_version, state.digest

    def restart(self) -> None:
        self._standing = None
        self._reset()
        self.sync()
        self._version, self._standing = 0, WARM_START

    @abstractmethod
    def sync(self) -> None: ...

    @abstractmethod
    def save_hf(self, path: Path) -> None: ...

    @abstractmethod
    def _generate(self, requests: list[GenerationRequest]) -> list[Completion]: ...

    @abstractmethod
    def _optimize(self, batch: TensorDict) -> dict[str, Any]: ...

    @abstractmethod
    def _learning_rate(self) -> float: ...

    @abstractmethod
    def _set_rate(self, rate: float) -> None: ...

    @abstractmethod
    def _write(self, folder: Path) -> None: ...

    @abstractmethod
    def _read(self, folder: Path) -> None: ...

    @abstractmethod
    def _reset(self) -> None: ...
