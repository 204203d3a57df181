"""The Ray host: it samples and updates as the one process does, checkpoints travel between them, and nothing is left behind."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sesa_core.errors import EngineError
from sesa_core.training.host import WARM_START, make_host
from sesa_core.types import Role
from tests.engine_support import ROOT, assert_same_weights, requests, sampled_rows, settings, weights
from tests.policies import save_policy


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


def ray_processes(mark: str) -> set[int]:
    """Live processes of clusters whose temp folder names the driver `mark`, found by command line or environment."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            zombie = (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:  # gone meanwhile, or another user's
            continue
        if f"sesa-ray-{mark}-".encode() in text and not zombie:
            found.add(int(process.name))
    return found - {os.getpid()}


def wait_until_gone(mark: str, seconds: float = 60.0) -> set[int]:
    deadline = time.monotonic() + seconds
    while (left := ray_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def test_both_hosts_sample_and_update_alike(policy_path, tmp_path):
    common = {"mini_batch_rows": 6, "kl_coef": 0.1}
    with make_host(settings(policy_path, **common), tmp_path) as here, make_host(settings(policy_path, "ray", **common), tmp_path) as there:
        for role in Role:
            near, far = here.engine(role), there.engine(role)
            assert [c.token_ids for c in near.rollout(requests())] == [c.token_ids for c in far.rollout(requests())]
            rows = sampled_rows(near)
            mine, theirs = near.update(rows), far.update(rows)
            assert mine == pytest.approx(theirs, abs=1e-5)
            assert_same_weights(weights(near, tmp_path / f"near-{role}"), weights(far, tmp_path / f"far-{role}"), 1e-5)
            near.sync()
            far.sync()
            assert [c.token_ids for c in near.rollout(requests(seed=1))] == [c.token_ids for c in far.rollout(requests(seed=1))]
        check_checkpoints_travel(here, there, tmp_path)
        check_errors_travel(there)
        assert ray_processes(str(os.getpid()))
    assert not wait_until_gone(str(os.getpid()))
    assert not list(Path(tempfile.gettempdir()).glob(f"sesa-ray-{os.getpid()}-*"))


def check_checkpoints_travel(here, there, tmp_path: Path) -> None:
    """What one host saves the other loads, and goes on alike."""
    near, far = here.engine(Role.SOLVER), there.engine(Role.SOLVER)
    far.save(tmp_path / "shared")
    near.update(sampled_rows(near, seed=5))
    near.load(tmp_path / "shared")
    rows = sampled_rows(near, seed=6)
    near.update(rows)
    far.update(rows)
    assert_same_weights(weights(near, tmp_path / "near-next"), weights(far, tmp_path / "far-next"), 1e-5)
    assert there.prepare(None) and not there.prepare(None)
    assert (far.policy_version, far.standing) == (0, WARM_START)


def check_errors_travel(there) -> None:
    (request,) = requests(1)
    with pytest.raises(EngineError, match="prompt of 200 tokens"):
        there.engine(Role.SOLVER).rollout([replace(request, prompt_ids=(1,) * 200)])


KILLED_DRIVER = """
import os, signal, sys
from pathlib import Path
from sesa_core.config.environment import quiet_libraries
quiet_libraries()
from sesa_core.training.host import make_host
from sesa_core.types import Role
from tests.core.training.test_ray_host import ray_processes
from tests.engine_support import settings
host = make_host(settings(Path(sys.argv[1]), "ray"), Path(sys.argv[2]))
host.engine(Role.SOLVER)
print(len(ray_processes(str(os.getpid()))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_killed_driver_leaves_no_process_behind(policy_path, tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", KILLED_DRIVER, str(policy_path), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    output, _ = driver.communicate(timeout=280)
    assert driver.returncode == -9
    assert int(output.split()[-1]) >= 3  # it did have a cluster
    assert not wait_until_gone(str(driver.pid))
