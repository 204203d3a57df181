"""`sesa ablate` with real runs: refusals, a cell that fails, and (long) an interruption in the middle."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.ablate import Bench, CellRun, Settings, lay_out, stand
from flows.commands.ablate import parse_seeds, refuse_overload
from flows.composition import check
from flows.worlds import pinned
from sesa_core.config.load import from_the_root, load_config
from sesa_core.errors import ConfigError
from sesa_core.evaluation.ablation.arms import ARMS, FULL, Arm
from sesa_core.training.run_folder import create_run, hold
from tests.flows.conftest import PATIENCE_S, STEP, environment, sesa, told, wait_for

TINY = (
    "selfplay.steps_per_segment=1",
    *STEP,
    "judge.base_url=http://127.0.0.1:9/v1",  # nobody listens there: neither arm may need a judge
)
UNJUDGED = "unjudged:distill.enabled=false,optim.lr=1e-5"
ARM = Arm(FULL, (), "")


def cell(runs_dir: Path, *overrides: str) -> CellRun:
    return lay_out([ARM], [0], Settings(None, None, overrides, 1), runs_dir)[0]


def started(runs_dir: Path, *overrides: str) -> CellRun:
    """A cell whose run exists, as one that was broken off before its first step."""
    own = cell(runs_dir, *overrides)
    create_run(pinned(from_the_root(own.config.model_copy(update={"runs_dir": str(runs_dir)}))), own.folder.name)
    return own


def test_a_cell_that_was_run_with_other_settings_is_refused_by_the_key_that_differs(tmp_path):
    there = started(tmp_path, "optim.lr=1e-5")
    assert stand(cell(tmp_path, "optim.lr=1e-5")).kind == "broken off"
    with pytest.raises(ConfigError) as refusal:
        cell(tmp_path, "optim.lr=1e-4", "optim.warmup_steps=0")
    assert refusal.value.key == "optim.lr"
    assert f"{there.folder.path} was run with 1e-05" in str(refusal.value)
    done = sesa("ablate", "--arms", FULL, "--seeds", "0", "--segments", "1", "--set", "optim.lr=1e-4", "--runs-dir", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: optim.lr: 0.0001 is not allowed; ")


def test_a_cell_that_was_run_over_another_world_is_refused_and_one_that_says_nothing_of_its_world_is_not(tmp_path):
    there = started(tmp_path)
    world = there.folder.config().world
    written = there.folder.config_file.read_text()
    there.folder.config_file.write_text(written.replace(world.fingerprint, "world-of-yesterday"))
    with pytest.raises(ConfigError) as refusal:
        cell(tmp_path)
    assert refusal.value.key == "world.fingerprint" and "was run with 'world-of-yesterday'" in str(refusal.value)
    there.folder.config_file.write_text(written.replace(f"  fingerprint: {world.fingerprint}\n", ""))
    assert there.folder.config().world.fingerprint is None
    assert stand(cell(tmp_path)).kind == "broken off"


def test_a_cell_is_known_again_however_its_paths_are_written(tmp_path, monkeypatch):
    """From another directory, and where an earlier SESA stored a path as it was given."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cards.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    there = started(tmp_path / "runs", "bank.warm_start_path=cards.jsonl")
    stored = there.folder.config_file.read_text()
    assert f"warm_start_path: {tmp_path.resolve() / 'cards.jsonl'}" in stored
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert stand(cell(tmp_path / "runs", "bank.warm_start_path=../cards.jsonl")).kind == "broken off"
    there.folder.config_file.write_text(stored.replace(str(tmp_path.resolve() / "cards.jsonl"), "../cards.jsonl"))
    assert stand(cell(tmp_path / "runs", "bank.warm_start_path=../cards.jsonl")).kind == "broken off"


def test_what_an_experiment_sets_of_one_kind_of_reward_is_no_setting_of_an_arm_with_another_kind():
    settings = Settings(None, None, ("proposer_reward.extreme_penalty=0.1", "proposer_reward.invalid_reward=-0.1"), None)
    shaped, unshaped = (settings.config(ARMS[name], 0).proposer_reward for name in (FULL, "no_frontier_shaping"))
    assert (shaped.kind, shaped.extreme_penalty, shaped.invalid_reward) == ("frontier", 0.1, -0.1)
    assert (unshaped.kind, unshaped.invalid_reward) == ("one_minus_pass_rate", -0.1)


def test_an_arm_with_wrong_settings_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="optim.speed"):
        lay_out([ARM, Arm("odd", ("optim.speed=1",), "")], [0], Settings(None, None, (), None), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_document_that_could_not_be_written_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="--out"):
        told("ablate", "--arms", FULL, "--runs-dir", tmp_path / "none", "--out", tmp_path / "no" / "where.md")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("setting", ["seed=3", "runs_dir=here", "selfplay.segments=2"])
def test_what_an_option_sets_is_not_set_twice(setting):
    with pytest.raises(ConfigError, match="give it with --"):
        Settings(None, None, (setting,), 1)


@pytest.mark.parametrize(("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("0-1,5", [0, 1, 5])])
def test_seeds_are_ranges_or_lists(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "0-", "-1"])
def test_seeds_that_cannot_be_are_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_more_cells_at_once_than_there_are_cores_are_refused(tmp_path):
    refuse_overload(1, [cell(tmp_path, "engine.threads=999")])
    with pytest.raises(ConfigError, match="at most 1 fit"):
        refuse_overload(2, [cell(tmp_path, "engine.threads=999")])


def test_a_run_that_distils_nothing_needs_no_judge(tmp_path):
    nobody = ["judge.base_url=http://127.0.0.1:9/v1", f"runs_dir={tmp_path}"]
    check(load_config(overrides=[*nobody, "distill.enabled=false"]))
    with pytest.raises(ConfigError, match="JUDGE_API_KEY"):
        check(load_config(overrides=["judge.base_url=https://judge.example/v1", "validation.verifier=judge", "distill.enabled=false"]))


def test_a_cell_that_fails_stops_no_other_and_is_named(tmp_path):
    """Both cells' settings parse; that the model is missing is found by the run. The second cell is tried all the same."""
    command = ["ablate", "--arms", "full,fixed_proposer", "--seeds", "0", "--runs-dir", tmp_path, "--set", "policy.path=/nowhere"]
    done = sesa(*command)
    assert done.returncode == 1
    assert "error: not done: full-seed-0, fixed-proposer-seed-0." in done.stderr
    reason = (tmp_path / "full-seed-0.failed.txt").read_text()
    assert reason.startswith("policy.path: '/nowhere' is not allowed; ")
    assert f"| `fixed_proposer` | 0 | failed: {reason.strip()} |" in done.stdout
    shown = json.loads(told(*command, "--show", "--json"))
    assert [(row["arm"], row["kind"], row["reason"]) for row in shown] == [
        (arm, "failed", reason.strip()) for arm in (FULL, "fixed_proposer")
    ]


def test_a_failure_is_told_by_what_this_attempt_said(tmp_path):
    """An error of an earlier attempt stands in the same file."""
    own = cell(tmp_path, "policy.path=/nowhere")
    own.screen_file.write_text("error: an old one\n")
    bench = Bench([own], 1, lambda changed: None, lambda: None)
    bench.run()
    assert bench.statuses()[0].kind == "failed"
    assert bench.statuses()[0].reason.startswith("policy.path")
    assert own.screen_file.read_text().startswith("error: an old one\n")


def test_a_cell_that_another_process_drives_is_waited_for_not_started_twice(tmp_path):
    own = started(tmp_path)
    begun = []

    def looked() -> None:
        begun.append(str(bench.statuses()[0]))
        if len(begun) == 2:
            driver.__exit__(None, None, None)

    driver = hold(own.folder)
    driver.__enter__()
    bench = Bench([own], 1, lambda changed: None, looked)
    bench.run()
    assert begun[0] == "running, before the first step"
    assert not own.screen_file.exists()
    assert bench.statuses()[0].kind == "broken off", "it was not driven to its end"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[Path, str]:
    """Two arms, one seed, two segments of one step: folder of the cells, and the document."""
    folder = tmp_path_factory.mktemp("ablation")
    done = sesa(*arguments(folder / "cells"), "--out", folder / "whole.md")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "cells", (folder / "whole.md").read_text()


def arguments(runs_dir: Path) -> list[str | Path]:
    changes = [part for setting in TINY for part in ("--set", setting)]
    return ["ablate", "--arms", "ssp", "--arm", UNJUDGED, "--seeds", "3", "--segments", "2", "--runs-dir", runs_dir, *changes]


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_S)
def test_an_interrupted_experiment_goes_on_and_comes_to_the_same_document(uninterrupted, tmp_path):
    """SIGINT while the second cell trains, sent to a process that was started with SIGINT ignored, as a shell does behind `&`."""
    whole_cells, whole = uninterrupted
    cells, out = tmp_path / "cells", tmp_path / "selfplay.md"
    cells.mkdir()
    shutil.copytree(whole_cells / ".search", cells / ".search")
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments(cells)), "--out", str(out)]
    second = cells / "unjudged-seed-3"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), preexec_fn=ignore_interrupts
    ) as process:
        try:
            wait_for(lambda: process.poll() is not None or (second / "metrics.jsonl").exists())
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "stopped; 1 of 2 cells are done" in said
    assert "| `unjudged` | 3 | broken off, step " in out.read_text()
    assert not (second / "report.json").exists() and not (second / "stop").exists()
    first = (cells / "ssp-seed-3" / "report.json").stat().st_mtime_ns
    done = sesa(*arguments(cells), "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert out.read_text() == whole
    assert (cells / "ssp-seed-3" / "report.json").stat().st_mtime_ns == first, "a finished cell is not run again"
    assert "ssp-seed-3: running" not in done.stdout


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_S)
def test_the_cells_are_ordinary_runs_and_no_judge_was_asked(uninterrupted):
    cells, whole = uninterrupted
    assert "2 of 2 cells are done" in whole and "Cells that are missing" not in whole
    assert told("judge", "cost", "--run", "unjudged-seed-3", "--runs-dir", cells).strip() == "the judge was never asked"
    pending = json.loads(told("judge", "pending", "--run", "unjudged-seed-3", "--runs-dir", cells, "--json"))
    assert pending, "failures are recorded all the same"
    assert json.loads(told("bank", "list", "--run", "ssp-seed-3", "--runs-dir", cells, "--json")) == []
