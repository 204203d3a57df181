"""`distill.overlap`: a segment's failures are judged while the next one trains."""

import json
import signal

import pytest

from flows.composition import open_bank
from sesa_core.training.run_folder import RunFolder
from tests.flows.conftest import PATIENCE_S, assert_books_are_in_order, boundaries, post, sesa, settings, started_sesa, wait_for
from tests.flows.served import flow_runs

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * PATIENCE_S)]
OVERLAP = ("distill.overlap=true", "selfplay.segments=3", "evaluation.arms=[off]", "evaluation.questions=1")


@pytest.fixture(scope="module")
def whole(runs_dir) -> RunFolder:
    """A run with overlap that nothing disturbed."""
    run = RunFolder(runs_dir / "overlap-whole")
    done = sesa("run", "--name", run.name, "--runs-dir", runs_dir, *settings(*OVERLAP))
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def lessons(run: RunFolder) -> list[tuple]:
    """The cards that a run wrote, and when."""
    with open_bank(run, run.config(), write=False) as store:
        return sorted((c.created_boundary, c.content_hash, c.retrieved_count) for c in store.read_cards() if c.origin == "distilled")


def test_cards_come_one_boundary_later_and_the_last_batch_before_the_run_ends(whole):
    assert_books_are_in_order(whole)
    with open_bank(whole, whole.config(), write=False) as store:
        records = store.read_failures()
        reports = {row.segment: row.report for row in store.boundaries() if row.segment}
        asked = {number: rows(whole, number) for number in (1, 2, 3)}
    assert not reports[1]["added"] and not reports[1]["refused"]
    taken = {r.failure.failure_id: r.consumed_boundary for r in records if r.consumed_boundary is not None}
    assert {name: taken[name] for name in asked[1]} == dict.fromkeys(asked[1], 2)
    assert {taken[name] for name in (*asked[2], *asked[3])} == {3}, "the last boundary waits for its own failures too"
    assert all(asked.values()) and len(set(sum(asked.values(), []))) == len(taken), "nobody is asked about twice"


def rows(run: RunFolder, number: int) -> list[str]:
    return [row["failure"] for row in json.loads(run.judge_table(number).read_text())]


def test_a_run_that_was_killed_while_both_went_on_ends_like_the_one_that_was_not(whole, runs_dir):
    run = RunFolder(runs_dir / "overlap-killed")
    with started_sesa("run", "--name", run.name, "--runs-dir", runs_dir, *settings(*OVERLAP)) as process:
        wait_for(lambda: process.poll() is not None or list(run.path.glob("segments/00002/attempt-1/*")))
        process.send_signal(signal.SIGKILL)
    done = sesa("run", "--resume", "--name", run.name, "--runs-dir", runs_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_books_are_in_order(run)
    assert lessons(run) == lessons(whole) and lessons(run)


def test_a_judge_that_hangs_delays_no_training_and_loses_nothing(prefect_server, runs_dir, tmp_path):
    run, prefect = RunFolder(runs_dir / "overlap-hangs"), {"PREFECT_API_URL": prefect_server, "PREFECT_HOME": str(tmp_path)}
    with started_sesa("judge", "serve", "--port", "0", "--faults", "ok*2,hang*") as judge:  # it is tried out twice before a run begins
        address = judge.stdout.readline().split("judge.base_url=")[1].strip()
        hangs = settings(*OVERLAP, f"judge.base_url={address}", "judge.retries=0", "judge.timeout_s=60")
        done = sesa("run", "--name", run.name, "--runs-dir", runs_dir, *hangs, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    report = run.report()
    assert (report["segments"], report["steps"]) == (3, 6)
    assert report["failures"]["found"] == report["failures"]["pending"] > 0 and report["cards"]["written"] == 0
    assert [b["segment"] for b in boundaries(run)] == [None, 1, 2, 3]
    batches = {f["name"]: f for f in flow_runs(prefect_server) if f["name"].startswith("distil")}
    assert {f["state"]["type"] for f in batches.values()} == {"FAILED"}
    tasks = {t["name"]: t for t in post(prefect_server, "/task_runs/filter", {}) if t["name"].startswith(("train", "judge"))}
    for number in (1, 2):
        batch, training = batches[f"distil segment {number}"], tasks[f"train segment {number + 1}"]
        assert batch["start_time"] < training["end_time"] < batch["end_time"], "the steps were done while the judge hung"
