"""A CPU platform for verl, and our rollout's entries in its registries; verl loads this module in every process it starts.

verl finds it through VERL_USE_EXTERNAL_MODULES (see config/environment.py). It is imported while `verl` itself is still
half imported, so nothing here may reach into verl's workers at import: the registries are filled with names and loaders.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

ROLLOUT_NAMES = ("sesa_proposer", "sesa_solver")  # one per policy: verl names its server actors after them


def _device_module() -> types.ModuleType:
    """torch.cpu with the calls that verl expects of torch.cuda: memory is always 0, nothing needs waiting for."""
    module = types.ModuleType("sesa_cpu_device")
    module.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")})
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *args, **kwargs: 0)
    for name in ("empty_cache", "synchronize", "set_device", "reset_peak_memory_stats", "manual_seed", "manual_seed_all"):
        setattr(module, name, lambda *args, **kwargs: None)
    module.mem_get_info = lambda *args, **kwargs: (0, 0)
    module.get_device_name = lambda *args, **kwargs: "cpu"
    module.is_available = lambda: False  # verl's cache emptying then returns early
    module.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    module.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    module.current_device = lambda: torch.device("cpu")
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """What verl asks of a device. Ray counts logical GPUs only, so a CPU worker takes a slot of that name."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never chosen by itself, only by VERL_PLATFORM

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_id: int = 0) -> tuple[None, None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def _load_replica() -> type:
    from sesa_core.training.verl.replica import GeneratorReplica

    return GeneratorReplica


def _register_rollouts() -> None:
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY  # a plain dict: verl has no register() for it
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    for name in ROLLOUT_NAMES:
        _ROLLOUT_REGISTRY[(name, "async")] = "sesa_core.training.verl.worker.GeneratorRollout"
        RolloutReplicaRegistry.register(name, _load_replica)


_register_rollouts()
