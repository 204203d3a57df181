"""The host keeps both policies alive across segments, wherever they run.

Owns the two engines of a run. Invariant: after `prepare` both engines are exactly at the named checkpoints (or at the warm
start), and what was already there was not loaded again. Edge case: a segment that broke off in the middle leaves an engine
between two checkpoints; the next `prepare` brings it back.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from sesa_core.config.models import RunConfig
from sesa_core.policy.base import Engine
from sesa_core.policy.loading import resolve_policy_path
from sesa_core.training.checkpoint import read_state
from sesa_core.types import Role

WARM_START = "warm start"


class HostedEngine(Engine, Protocol):
    """An engine that knows which checkpoint it stands at."""

    @property
    def standing(self) -> str | None:
        """The digest of the checkpoint whose state this is, `WARM_START`, or None between checkpoints."""
        ...

    def restart(self) -> None:
        """Back to the warm start, the generator included."""
        ...

    def save_hf(self, path: Path) -> None:
        """Write the weights, config and tokenizer as a folder that Hugging Face's auto classes load."""
        ...


class Host(ABC):
    """Both policies of a run. Use as a context manager, or call `release`."""

    @abstractmethod
    def engine(self, role: Role) -> HostedEngine:
        """The policy of `role`, started if it is not yet running."""

    @abstractmethod
    def release(self) -> None:
        """Let go of memory and processes. The next `engine` or `prepare` starts afresh. Calling it twice changes nothing."""

    def prepare(self, checkpoints: Mapping[Role, Path] | None) -> bool:
        """Bring both policies to a boundary's `checkpoints`, or to the warm start; True when anything had to be loaded.

        Idempotent: an engine that stands exactly there is left alone. Raises EngineError or CheckpointMismatch when a
        checkpoint is missing or damaged.
        """
        moved = [self._bring(role, None if checkpoints is None else Path(checkpoints[role])) for role in Role]
        return any(moved)

    def _bring(self, role: Role, path: Path | None) -> bool:
        wanted = WARM_START if path is None else read_state(path, role).digest
        engine = self.engine(role)
        if engine.standing == wanted:
            return False
        if path is None:
            engine.restart()
        else:
            engine.load(path)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def make_host(config: RunConfig, run_dir: Path) -> Host:
    """The host that `config.engine.host` names. verl and Ray are imported only here; Ray keeps its files under the system's temp folder."""
    policy_path = resolve_policy_path(config.policy.path)
    if config.engine.host == "ray":
        from sesa_core.training.verl.ray_host import RayHost

        return RayHost(config, policy_path)
    from sesa_core.training.verl.in_process import InProcessHost

    return InProcessHost(config, policy_path)
