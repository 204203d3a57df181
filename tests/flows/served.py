"""A started Prefect server with our deployments on it: what tests do there, as a person does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.flows.conftest import PATIENCE_S, environment, post, wait_for

ROOT = Path(__file__).parents[2]
LEAVE_S = 60.0


def prefect(*arguments: str, **more: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def deploy_all(**at: str) -> None:
    """The commands of README's "From the Prefect UI"; a pool or a queue that is there stays."""
    prefect("work-pool", "create", "sesa", "--type", "process", "--overwrite", **at)
    if not post(at["PREFECT_API_URL"], "/work_queues/filter", {"work_queues": {"name": {"any_": ["training"]}}}):
        prefect("work-queue", "create", "training", "--pool", "sesa", "--limit", "1", **at)
    prefect("deploy", "--all", "--no-prompt", "--prefect-file", "deployments/prefect.yaml", **at)


@contextmanager
def worker(log: Path, **more: str) -> Iterator[None]:
    """A worker that runs what is deployed; it leaves with the block."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "sesa"]
    with log.open("wb") as out, subprocess.Popen(command, cwd=ROOT, env=environment(**more), stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:  # it interrupts itself, which a shell's background job does not hear
                process.kill()


def flow_runs(server: str, **named: str) -> list[dict]:
    """Those whose name is `name`, or all, in the order of their start."""
    chosen = {"flow_runs": {"name": {"any_": [named["name"]]}}} if named else {}
    return post(server, "/flow_runs/filter", {"sort": "START_TIME_ASC", **chosen})


def state_of(server: str, flow_run: str) -> tuple[str, str]:
    """(type, message)"""
    found = post(server, "/flow_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})[0]["state"]
    return found["type"], found["message"] or ""


def press_retry(server: str, flow_run: str) -> None:
    """What the UI's button sends."""
    retry = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the Prefect UI"}
    post(server, f"/flow_runs/{flow_run}/set_state", {"state": retry})


def ended(server: str, flow_run: str) -> tuple[str, str]:
    """The state in which a flow run comes to rest."""
    wait_for(lambda: state_of(server, flow_run)[0] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"))
    return state_of(server, flow_run)


def start_deployment(server: str, name: str, parameters: dict) -> str:
    """The id of the flow run."""
    flow, _, deployment = name.partition("/")
    wanted = {"flows": {"name": {"any_": [flow]}}, "deployments": {"name": {"any_": [deployment]}}}
    found = post(server, "/deployments/filter", wanted)[0]
    return post(server, f"/deployments/{found['id']}/create_flow_run", json.loads(json.dumps({"parameters": parameters})))["id"]
