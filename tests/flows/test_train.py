"""The main job, whole and small: run, kill, resume, and what a complete run leaves."""

import json
import re
import signal
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sesa_core.errors import UserError
from sesa_core.policy.loading import TINY, load_tokenizer
from sesa_core.training.run_folder import RunFolder
from tests.flows.conftest import (
    PATIENCE_S,
    assert_books_are_in_order,
    boundaries,
    committed,
    sesa,
    settings,
    started_sesa,
    told,
    wait_for,
)

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)


@pytest.fixture(scope="module")
def finished(runs_dir) -> RunFolder:
    """A run that was killed the moment its first segment's boundary was written, and resumed to its end."""
    run = RunFolder(runs_dir / "killed")
    often = settings("evaluation.every_segments=1")
    with started_sesa("run", "--name", "killed", "--runs-dir", runs_dir, *often) as process:
        wait_for(lambda: process.poll() is not None or committed(run) == 2)
        assert process.poll() is None, process.stdout.read()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not run.evaluation_file(1).exists(), "killed before the evaluation that is due after the segment"
    done = sesa("run", "--resume", "--runs-dir", runs_dir, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == run.report(), "with --json standard output is the report"
    assert "left" in done.stderr
    return run


def test_a_killed_run_is_resumed_to_its_end(finished):
    rows = boundaries(finished)
    assert [(b["boundary"], b["segment"], b["attempt"]) for b in rows] == [(0, None, None), (1, 1, 1), (2, 2, 1)]
    report = finished.report()
    assert (report["segments"], report["steps"]) == (2, 4)
    assert report["questions"]["posed"] == 4 * 2 * 3
    assert set(report["evaluations"]["2"]["arms"]) == {"off", "on", "placebo"}


def test_an_evaluation_that_a_kill_prevented_is_made_up_for(finished):
    assert list(finished.report()["evaluations"]) == ["0", "1", "2"]


def test_every_failure_is_consumed_once_and_no_card_comes_twice(finished):
    assert_books_are_in_order(finished)


def test_the_folder_holds_what_it_promises(finished):
    for name in ("config.yaml", "bank", "metrics.jsonl", "log.txt", "report.json"):
        assert (finished.path / name).exists(), name
    kept = sorted(p.relative_to(finished.path).parts[1] for p in finished.path.rglob("checkpoints"))
    assert kept == ["00002"], "retention.checkpoints=1 keeps the last boundary's"
    assert (finished.prefect_home / "prefect.db").exists(), "each run has a Prefect database of its own"
    assert not (finished.path.parent / ".prefect").exists()
    leftovers = [p.name for p in finished.path.glob("*") if p.name.endswith(".partial") or p.name == "stop"]
    assert not leftovers


def test_a_complete_run_has_nothing_to_resume(finished):
    done = sesa("run", "--resume", "--name", "killed", "--runs-dir", finished.path.parent)
    assert done.returncode == 2
    assert "complete" in done.stderr


def test_what_a_run_measured_is_shown(finished):
    where = ("--run", "killed", "--runs-dir", finished.path.parent, "--json")
    stored = finished.report()["evaluations"]
    assert json.loads(told("eval", *where, "--at", "0")) == stored["0"]
    newest = sesa("eval", *where)
    assert json.loads(newest.stdout) == stored["2"]
    assert "--again" in newest.stderr


@pytest.mark.long
def test_what_a_run_measured_is_measured_again_alike(finished):
    again = sesa("eval", "--run", "killed", "--runs-dir", finished.path.parent, "--again", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["arms"]["on"]["outcomes"] == finished.report()["evaluations"]["2"]["arms"]["on"]["outcomes"]


@pytest.mark.long
def test_the_policies_of_a_run_can_be_taken_elsewhere_and_started_from(finished, tmp_path):
    where = ("--run", "killed", "--runs-dir", finished.path.parent)
    done = sesa("export", "hf", tmp_path / "out", *where, "--json")
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    checkpoints = finished.segment_dir(2) / "attempt-1" / "checkpoints"
    for role in ("proposer", "solver"):
        model = AutoModelForCausalLM.from_pretrained(policies[role])
        trained = torch.load(checkpoints / role / "model_world_size_1_rank_0.pt", weights_only=False)
        for name, weights in model.state_dict().items():
            assert torch.equal(weights, trained[name].full_tensor() if hasattr(trained[name], "full_tensor") else trained[name])
        assert load_tokenizer(Path(policies[role])).get_vocab() == load_tokenizer(TINY).get_vocab()
    assert sesa("export", "hf", tmp_path / "out", *where).returncode == 2, "nothing is overwritten"
    few = settings(f"policy.path={policies['solver']}", "selfplay.segments=1", "evaluation.questions=1", "evaluation.arms=[off]")
    again = sesa("run", "--name", "from-another", "--runs-dir", tmp_path / "runs", *few)
    assert again.returncode == 0, again.stdout + again.stderr


def test_the_bank_of_a_run_can_be_read(finished):
    where = ("--run", "killed", "--runs-dir", finished.path.parent)
    cards = json.loads(told("bank", "list", *where, "--json"))
    assert cards[0]["pattern"] in sesa("bank", "show", cards[0]["card"], *where).stdout
    with pytest.raises(UserError, match="did you mean"):
        told("bank", "show", cards[0]["card"] + "x", *where)
    assert len(json.loads(told("bank", "list", *where, "--at", "0", "--json"))) <= len(cards) + 20


def test_the_games_of_a_run_can_be_read(finished):
    where = ("--run", "killed", "--runs-dir", finished.path.parent)
    rows = json.loads(told("rollouts", "stats", *where, "--by", "step", "--json"))
    assert [(r["step"], r["role"], r["count"]) for r in rows if r["role"] == "proposer"] == [(s, "proposer", 6) for s in range(1, 5)]
    metrics = [json.loads(line) for line in finished.metrics_file.read_text().splitlines()]
    played = {m["step"]: m for m in metrics}
    for row in rows:
        assert row["reward"] == pytest.approx(played[row["step"]][f"{row['role']}/reward"])
        assert row["tokens"] == pytest.approx(played[row["step"]][f"{row['role']}/response_tokens"])
    shown = json.loads(told("rollouts", "show", *where, "--json"))
    (game,) = shown["games"]
    assert (shown["step"], len(game["rollouts"]), len(shown["problems"]) > 0) == (4, 4, True)
    saw = [any(not c["decoy"] for c in r["cards"]) for r in game["rollouts"]]
    arms = {arm: {r["reward"] for r, own in zip(game["rollouts"], saw, strict=True) if own is arm} for arm in saw}
    assert all(r["turns"] for r in game["rollouts"])
    assert all(r["advantage"] is not None or len(arms[arm]) == 1 for r, arm in zip(game["rollouts"], saw, strict=True))
    hits = json.loads(told("rollouts", "grep", "^" + re.escape(game["question"]) + "$", *where, "--step", "4", "--json"))["hits"]
    assert game["problem"] in {h["problem"] for h in hits}
    said = told("rollouts", "show", *where, "--trajectory", game["rollouts"][0]["trajectory"])
    assert said.startswith(f"problem {game['problem']} · step 4\nquestion    {game['question']}\n")


@pytest.mark.long
def test_ctrl_c_during_an_evaluation_keeps_nothing_half_and_says_how_to_go_on(runs_dir):
    run, long = RunFolder(runs_dir / "stopped"), settings("evaluation.questions=500", "evaluation.samples=4")
    with started_sesa("run", "--name", "stopped", "--runs-dir", runs_dir, *long) as process:
        wait_for(lambda: process.poll() is not None or committed(run) == 1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert f"sesa run --resume --name stopped --runs-dir {runs_dir}" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert [b["boundary"] for b in boundaries(run)] == [0]
    assert not list(run.path.glob("evaluations/*")) and not run.segments()
    assert not run.stop_file.exists(), "the wish was met; the next start must not find it"
    shown = sesa("eval", "--run", "stopped", "--runs-dir", runs_dir, "--at", "3")
    assert shown.returncode == 2
    assert "no such segment is committed; policies are kept of segments 0 (" in shown.stderr


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
