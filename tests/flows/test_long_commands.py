"""What takes minutes beside whole runs: a deployment and its Retry, and the recipe of the shipped world."""

import json
import os
import signal
from pathlib import Path

import pytest

from sesa_core.training.run_folder import RunFolder
from sesa_core.world.build import WORDNET
from sesa_core.world.load import SHIPPED
from tests.flows.conftest import PATIENCE_S, SMALL, sesa, wait_for
from tests.flows.served import deploy_all, flow_runs, prefect, start_deployment, state_of, worker

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * PATIENCE_S)]


def process_of(flow_run: str) -> int | None:
    """The process in which a worker runs this flow run; Prefect tells it by its environment."""
    wanted = f"PREFECT__FLOW_RUN_ID={flow_run}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
        except OSError:
            continue
    return None


def test_a_retry_goes_on_with_the_run_that_its_flow_run_began(prefect_server, tmp_path):
    at = {"PREFECT_API_URL": prefect_server, "PREFECT_HOME": str(tmp_path / "home")}
    few = ["evaluation.questions=1", "evaluation.arms=[off]", "selfplay.segments=1"]
    form = {"runs_dir": str(tmp_path / "runs"), "overrides": [*SMALL, *few]}
    deploy_all(**at)
    flow_run = start_deployment(prefect_server, "train/train", {"form": form})

    def state() -> str:
        return state_of(prefect_server, flow_run)[0]

    run = RunFolder(tmp_path / "runs" / f"train-{flow_run[:8]}")
    with worker(tmp_path / "worker.txt", **at):
        wait_for(lambda: list(run.path.glob("segments/00001/attempt-1")))
        os.kill(process_of(flow_run), signal.SIGKILL)
        while state() != "COMPLETED":  # a worker reports a crash twice, and its second report takes back a Retry that came between
            wait_for(lambda: state() in ("CRASHED", "COMPLETED"))
            if state() == "CRASHED":
                prefect("flow-run", "retry", flow_run, **at)
    assert [p.name for p in run.path.parent.glob("*/config.yaml")] == ["config.yaml"], "one flow run, one run"
    assert run.report()["segments"] == 1
    (batch,) = (f for f in flow_runs(prefect_server, name="distil segment 1") if f["parameters"]["run_dir"] == str(run.path))
    assert batch["deployment_id"] and batch["parent_task_run_id"] and batch["state"]["type"] == "COMPLETED"
    assert "the run is being trained and takes the replies in" in batch["state"]["message"]
    assert run.report()["failures"]["distilled"] == len(batch["parameters"]["failure_ids"]) > 0


@pytest.mark.skipif(not WORDNET.exists(), reason="WordNet is not installed on this machine")
def test_the_world_is_built_again_to_the_same_bytes(tmp_path):
    done = sesa("world", "build", "--out", tmp_path / "world", "--json")
    assert done.returncode == 0, done.stderr
    shipped = json.loads((SHIPPED / "manifest.json").read_text())
    assert json.loads(done.stdout)["sha256"] == shipped["sha256"]
