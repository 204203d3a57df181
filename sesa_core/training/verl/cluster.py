"""One local Ray cluster for one host: started on loopback, ended with the host.

Invariant: its files lie in one temp folder that names this process, removed at the end. Edge case: a killed driver leaves
its folder behind (its processes die with it); the next cluster sweeps such folders away.
"""

import os
import shutil
import tempfile
from pathlib import Path

import ray

from sesa_core.config.environment import quiet_ray

PREFIX = "sesa-ray-"
SLOTS = 6  # logical CPUs: verl's pools ask for three per policy; real threads are bounded by the settings
OBJECT_STORE_BYTES = 100 << 20


class LocalCluster:
    """Runs from construction to `stop`. Construct it in the main thread: Ray's processes die with the thread that started them."""

    def __init__(self) -> None:
        _sweep()
        quiet_ray()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        started = False
        try:
            _start(self._folder)
            started = True
        finally:
            if not started:  # Ray gives a slow machine 30 seconds
                self.stop()

    def stop(self) -> None:
        """End every process of the cluster. Calling it twice changes nothing."""
        if ray.is_initialized():
            ray.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _start(folder: Path) -> None:
    ray.init(
        address="local",
        num_cpus=SLOTS,
        num_gpus=1,  # verl counts logical GPUs, on the CPU platform too
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
    )


def _sweep() -> None:
    """Remove the folders of clusters whose driver is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        driver = folder.name.removeprefix(PREFIX).split("-")[0]
        if driver.isdigit() and not Path(f"/proc/{driver}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
