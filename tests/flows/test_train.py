"""The main job, whole and small: run, stop, kill, resume, and the same flow against a started server."""

import json
import signal
from pathlib import Path

import pytest

from sesa_core.training.run_folder import RunFolder
from tests.flows.conftest import PATIENCE_S, assert_books_are_in_order, boundaries, post, sesa, settings, started_sesa, wait_for

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)


@pytest.fixture(scope="module")
def finished(runs_dir) -> RunFolder:
    """A run that was killed in its second segment and resumed to its end."""
    run = RunFolder(runs_dir / "killed")
    with started_sesa("run", "--name", "killed", "--runs-dir", runs_dir, *settings()) as process:
        wait_for(lambda: process.poll() is not None or (run.segment_dir(2) / "attempt-1" / "evidence.jsonl").exists())
        assert process.poll() is None, process.stdout.read()
        process.send_signal(signal.SIGKILL)
    done = sesa("run", "--resume", "--runs-dir", runs_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def test_a_killed_run_is_resumed_to_its_end(finished):
    rows = boundaries(finished)
    assert [(b["boundary"], b["segment"]) for b in rows] == [(0, None), (1, 1), (2, 2)]
    assert rows[1]["attempt"] == 1
    assert rows[2]["attempt"] in (1, 2), "2 unless the kill came after the last step"
    report = finished.report()
    assert (report["segments"], report["steps"]) == (2, 4)
    assert report["questions"]["posed"] == 4 * 3 * 4
    assert list(report["evaluations"]) == ["0", "2"]
    assert set(report["evaluations"]["2"]["arms"]) == {"off", "on", "placebo"}


def test_every_failure_is_consumed_once_and_no_card_comes_twice(finished):
    assert_books_are_in_order(finished)


def test_the_folder_holds_what_it_promises(finished):
    for name in ("config.yaml", "bank", "metrics.jsonl", "log.txt", "report.json"):
        assert (finished.path / name).exists(), name
    kept = sorted(p.relative_to(finished.path).parts[1] for p in finished.path.rglob("checkpoints"))
    assert kept == ["00002"], "retention.checkpoints=1 keeps the last boundary's"
    leftovers = [p.name for p in finished.path.glob("*") if p.name.endswith(".partial") or p.name == "stop"]
    assert not leftovers


def test_a_complete_run_has_nothing_to_resume(finished):
    done = sesa("run", "--resume", "--name", "killed", "--runs-dir", finished.path.parent)
    assert done.returncode == 2
    assert "complete" in done.stderr


def test_policy_and_bank_of_a_run_can_be_evaluated_again(finished):
    done = sesa("eval", "--run", "killed", "--runs-dir", finished.path.parent, "--json")
    assert done.returncode == 0, done.stderr
    stored = finished.report()["evaluations"]["2"]
    assert json.loads(done.stdout)["arms"]["on"]["outcomes"] == stored["arms"]["on"]["outcomes"]


def test_the_bank_of_a_run_can_be_read(finished):
    where = ("--run", "killed", "--runs-dir", finished.path.parent)
    cards = json.loads(sesa("bank", "list", *where, "--json").stdout)
    shown = sesa("bank", "show", cards[0]["card"], *where)
    assert cards[0]["pattern"] in shown.stdout
    assert "did you mean" in sesa("bank", "show", cards[0]["card"] + "x", *where).stderr
    assert len(json.loads(sesa("bank", "list", *where, "--at", "0", "--json").stdout)) <= len(cards) + 20


def test_ctrl_c_stops_after_the_step_keeps_nothing_half_and_says_how_to_go_on(runs_dir):
    run, brief = RunFolder(runs_dir / "stopped"), settings("evaluation.arms=[off]", "evaluation.questions=1")
    with started_sesa("run", "--name", "stopped", "--runs-dir", runs_dir, *brief) as process:
        wait_for(lambda: process.poll() is not None or list(run.path.glob("segments/00001/attempt-1")))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "sesa run --resume --name stopped" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert [b["boundary"] for b in boundaries(run)] == [0]
    assert len((run.segment_dir(1) / "attempt-1" / "metrics.jsonl").read_text().splitlines()) == 1


def test_on_a_started_server_a_judge_that_dies_fails_its_batch_and_nothing_else(prefect_server, runs_dir):
    run = RunFolder(runs_dir / "served")
    few = ("evaluation.arms=[off]", "evaluation.questions=1", "selfplay.segments=1", "selfplay.steps_per_segment=1")
    with started_sesa("judge", "serve", "--port", "0") as judge:
        address = judge.stdout.readline().split("judge.base_url=")[1].strip()
        hurry = settings(*few, f"judge.base_url={address}", "judge.retries=1", "judge.retry_delay_s=0.01")
        arguments = ("run", "--name", "served", "--runs-dir", runs_dir, *hurry)
        with started_sesa(*arguments, PREFECT_API_URL=prefect_server) as process:
            wait_for(lambda: process.poll() is not None or list(run.path.glob("evaluations/*.json")))
            judge.terminate()  # it answered when the run began; nobody is there when failures are to be distilled
            output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    report = run.report()
    assert report["failures"]["found"] == report["failures"]["pending"] > 0, "nothing lost, nothing invented"
    assert report["cards"]["written"] == 0

    states = {f["name"]: f["state"]["type"] for f in post(prefect_server, "/flow_runs/filter", {})}
    assert states == {"served": "COMPLETED", "segment 1": "COMPLETED", "distil segment 1": "FAILED"}
    artifacts = {a["key"]: json.loads(a["data"]) for a in post(prefect_server, "/artifacts/filter", {}) if a["type"] == "table"}
    assert set(artifacts) == {"metrics-served", "judge-served", "gate-served", "bank-served"}
    assert all(row["calls"] == 2 and "judge at" in row["status"] for row in artifacts["judge-served"]), "one retry each"


def test_nothing_outlives_a_run(finished):
    """The embedded server of a killed run leaves too: it watches a pipe that closes with the run."""
    mine = str(finished.path.parent)

    def servers() -> list[Path]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if b"flows.embedded_prefect" in command and mine.encode() in environ:
                found.append(process)
        return found

    wait_for(lambda: not servers(), seconds=30)
