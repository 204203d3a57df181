"""What takes minutes: the whole job on Ray, and runs that are killed again and again."""

import signal
import time

import pytest

from sesa_core.rng import stream
from sesa_core.training.run_folder import RunFolder
from tests.flows.conftest import PATIENCE_S, assert_books_are_in_order, boundaries, sesa, settings, started_sesa, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * PATIENCE_S)]


def test_the_whole_job_runs_on_ray(runs_dir):
    run = RunFolder(runs_dir / "on-ray")
    done = sesa("run", "--name", "on-ray", "--runs-dir", runs_dir, *settings("engine=ray"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert_books_are_in_order(run)
    assert set(run.report()["evaluations"]["2"]["arms"]) == {"off", "on", "placebo"}


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_is_killed_at_any_moment_ends_complete(seed, runs_dir):
    """Up to five SIGKILLs at random moments, from the first second of a start to its boundaries, then in peace to the end."""
    rng, run = stream(seed, "kill moments"), RunFolder(runs_dir / f"kills-{seed}")
    where = ("--runs-dir", runs_dir, "--name", run.name)
    for _ in range(5):
        command = ("run", "--resume", *where) if (run.path / "config.yaml").exists() else ("run", *where, *settings())
        with started_sesa(*command) as process:
            start, life = time.monotonic(), rng.uniform(1, 45)
            wait_for(lambda: process.poll() is not None or time.monotonic() - start > life)  # noqa: B023
            process.send_signal(signal.SIGKILL)
        if (run.path / "report.json").exists():
            break
    else:
        done = sesa("run", "--resume", *where)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [b["segment"] for b in boundaries(run)] == [None, 1, 2]
    assert_books_are_in_order(run)
