"""One small run, and one started Prefect server, for all tests of this folder."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.composition import open_bank
from sesa_core.training.run_folder import RunFolder

PATIENCE_S = 600.0  # nothing here takes a minute on an idle machine; a starved one must not make a test lie

STEP = [
    "selfplay.targets=2",
    "selfplay.proposals_per_target=3",
    "selfplay.problems=4",
    "selfplay.solver_group=4",
    "evaluation.questions=6",
    "evaluation.samples=1",
    "evaluation.split=dev",
    "queue.min_pending=1",
    "queue.per_boundary=3",
]
SMALL = ["selfplay.steps_per_segment=2", "selfplay.segments=2", *STEP, "retention.checkpoints=1"]


def settings(*more: str) -> list[str]:
    return [part for override in (*SMALL, *more) for part in ("--set", override)]


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_") and k != "JUDGE_API_KEY"}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def sesa(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a person calls it."""
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=PATIENCE_S)


def told(*arguments: str | Path) -> str:
    """What a reading command prints, asked in this process: starting another one takes seconds. A refusal is raised."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def committed(run: RunFolder) -> int:
    """Boundaries of a run as they lie on disk, without opening its bank: the table's first version is the empty one."""
    return len(list(run.path.glob("bank/boundaries.lance/_versions/*.manifest"))) - 1


@contextmanager
def started_sesa(*arguments: str | Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The command line in the background; it does not outlive the block."""
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(**more)) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory) -> Path:
    """Shared, so that the search index is made once."""
    return tmp_path_factory.mktemp("flows") / "runs"


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory) -> Iterator[str]:
    """A server as a person would start it, on a free port; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = tmp_path_factory.mktemp("prefect")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    quiet = environment(PREFECT_HOME=str(home), PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    with (home / "log.txt").open("wb") as log:
        server = subprocess.Popen(command, env=quiet, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}/api"
    try:
        wait_for(lambda: answers(f"{address}/health"))
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


def boundaries(run: RunFolder) -> list[dict]:
    return json.loads(told("bank", "versions", "--run", run.name, "--runs-dir", run.path.parent, "--json"))


def assert_books_are_in_order(run: RunFolder) -> None:
    """Every failure consumed once, by a boundary that exists; no card, lesson or boundary twice, none missing."""
    rows = boundaries(run)
    assert [b["boundary"] for b in rows] == list(range(len(rows)))
    assert [b["segment"] for b in rows if b["segment"]] == list(range(1, run.config().selfplay.segments + 1))
    with open_bank(run, run.config(), write=False) as store:
        records = {r.failure.failure_id: r for r in store.read_failures()}
        cards = store.read_cards()
    made = [c.source_problem_id for c in cards if c.origin == "distilled"]
    assert records, "a tiny policy that is never wrong would make this test empty"
    assert len(made) == len(set(made))
    assert len({c.content_hash for c in cards}) == len(cards)
    consumed = [r for r in records.values() if r.state == "consumed"]
    assert len(consumed) == run.report()["failures"]["distilled"]
    assert all(r.consumed_boundary in range(1, len(rows)) for r in consumed)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def post(address: str, path: str, body: dict) -> list[dict]:
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)
