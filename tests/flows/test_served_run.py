"""The main job on a started Prefect server: stopped by a person, resumed without its judge, and seen there as it is."""

import json

import pytest

from sesa_core.training.run_folder import RunFolder
from tests.flows.conftest import PATIENCE_S, boundaries, post, sesa, settings, started_sesa, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * PATIENCE_S)]


@pytest.fixture(scope="module")
def served(prefect_server, runs_dir, tmp_path_factory) -> tuple[RunFolder, str]:
    """A run on a started server: stopped by `sesa stop` in its segment, resumed when its judge was gone; what it then said."""
    run, prefect = RunFolder(runs_dir / "served"), {"PREFECT_API_URL": prefect_server, "PREFECT_HOME": str(tmp_path_factory.mktemp("home"))}
    few = ("evaluation.arms=[off]", "evaluation.questions=1", "selfplay.segments=1", "selfplay.steps_per_segment=4")
    with started_sesa("judge", "serve", "--port", "0") as judge:
        address = judge.stdout.readline().split("judge.base_url=")[1].strip()
        hurry = settings(*few, f"judge.base_url={address}", "judge.retries=1", "judge.retry_delay_s=0.01")
        where = ("--name", "served", "--runs-dir", runs_dir)
        with started_sesa("run", *where, *hurry, **prefect) as process:
            wait_for(lambda: process.poll() is not None or list(run.path.glob("segments/00001/attempt-1")))
            stopping = sesa("stop", "--runs-dir", runs_dir, "--json")
            output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert json.loads(stopping.stdout)["run"] == "served"
    done = sesa("run", "--resume", *where, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    return run, done.stdout


def test_sesa_stop_ends_a_run_after_its_step_and_the_segment_is_trained_again(served):
    run, _ = served
    first, second = (run.segment_dir(1) / f"attempt-{n}" for n in (1, 2))
    assert len((first / "metrics.jsonl").read_text().splitlines()) < 4 and not (first / "result.json").exists()
    assert len((second / "metrics.jsonl").read_text().splitlines()) == 4
    assert [(b["segment"], b["attempt"]) for b in boundaries(run)] == [(None, None), (1, 2)]


def test_a_judge_that_is_down_does_not_keep_a_run_from_going_on(served):
    run, output = served
    assert "failures will wait until it answers" in output
    report = run.report()
    assert report["failures"]["found"] == report["failures"]["pending"] > 0, "nothing lost, nothing invented"
    assert report["cards"]["written"] == 0


def test_a_batch_whose_calls_fail_is_shown_failed_and_fails_nothing_else(served, prefect_server):
    runs = post(prefect_server, "/flow_runs/filter", {"sort": "START_TIME_ASC"})
    runs = runs[[f["name"] for f in runs].index("served") :]  # the server may hold runs of other files' tests
    states = [(f["name"], f["state"]["type"]) for f in runs]
    assert states[0] == ("served", "CANCELLED"), "stopped by a person"
    again = [s for s in states if s[1] != "CANCELLED"]
    assert again == [("served", "COMPLETED"), ("segment 1", "COMPLETED"), ("distil segment 1", "FAILED")]
    failed = next(f for f in runs if f["state"]["type"] == "FAILED")
    assert "brought no usable reply" in failed["state"]["message"]
    artifacts = {a["key"]: json.loads(a["data"]) for a in post(prefect_server, "/artifacts/filter", {}) if a["type"] == "table"}
    artifacts = {key: table for key, table in artifacts.items() if key.endswith("-served")}
    assert set(artifacts) == {"metrics-served", "judge-served", "health-served", "gate-served", "bank-served"}
    assert all(row["calls"] == 2 and "judge at" in row["status"] for row in artifacts["judge-served"]), "one retry each"
